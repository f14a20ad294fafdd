#!/bin/sh
# Two agents joined by a pipe: what the first one prints is the second one's input.
set -eu
aos=${AOS:-aos}
folder=${1:-$(mktemp -d)}

writer=$("$aos" spawn --name writer -w "$folder" --grant "FS_READ list.md" --grant "FS_WRITE list.md" \
    --role "You keep list.md. Add every line that comes on standard input to it, as a list item.")
reader=$("$aos" spawn --name reader --pipe-to "$writer" \
    --role "You get notes as they come. Answer each with one short line that says what is to be done, and nothing else.")

"$aos" send "$reader" "Ada said we should call her about the invoice, but she is only there on Monday."

n=0
until [ -s "$folder/list.md" ] || [ $n -ge 600 ]; do sleep 0.2; n=$((n + 1)); done
cat "$folder/list.md"
"$aos" tree
echo "try: aos send $reader 'another note'; cat $folder/list.md; aos kill $reader $writer"
