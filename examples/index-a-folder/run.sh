#!/bin/sh
# An agent that keeps an index of a folder: sh run.sh [FOLDER]
set -eu
aos=${AOS:-aos}
folder=${1:-$(mktemp -d)}
mkdir -p "$folder/notes"

pid=$("$aos" spawn --name indexer -w "$folder" \
    --grant "FS_WATCH notes/**" --grant "FS_LIST notes/**" --grant "FS_READ notes/**" --grant "FS_WRITE INDEX.md" \
    "Keep INDEX.md: one line for each file in the folder notes. \
Watch the folder with FS_WATCH, write INDEX.md now, and bring it up to date whenever the folder changes.")

# It is idle, and costs nothing, as soon as it waits for input.
idle() { until "$aos" inspect --json "$pid" | grep -q '"waiting_for":"stdin"'; do sleep 0.2; done; }

idle
echo "Ada calls on Monday." > "$folder/notes/ada.md"
sleep "${SETTLE:-3}"
idle
cat "$folder/INDEX.md"
echo "agent $pid watches $folder/notes; try: cp FILE $folder/notes; aos logs -f $pid; aos kill $pid"
