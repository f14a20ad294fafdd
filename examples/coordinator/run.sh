#!/bin/sh
# One agent that starts three helpers, waits for them, and puts their answers together.
set -eu
aos=${AOS:-aos}
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
for text in "$here"/texts/*.txt; do
    name=$(basename "$text")
    if [ -e "$folder/$name" ] || [ -L "$folder/$name" ]; then
        echo "$folder has $name already; name another folder" >&2
        exit 2
    fi
done
cp "$here"/texts/*.txt "$folder"

"$aos" run -w "$folder" \
    "Count the words of a.txt, b.txt and c.txt. \
Give each file to a helper of its own (SPAWN_AGENT) that may read that file and nothing else, wait for the three, \
and write one line for each, and the sum, to total.md."
cat "$folder/total.md"
"$aos" tree -a
