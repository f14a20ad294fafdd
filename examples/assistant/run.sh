#!/bin/sh
# A resident assistant that is told things over days. The days are short here, and the daemon restarts in between.
set -eu
aos=${AOS:-aos}

pid=$("$aos" spawn --name assistant \
    --role "You are the assistant of one person. Keep what may matter later with MEM_WRITE, look it up with MEM_READ \
before you answer, and set timers with SYS_SCHEDULE when you are asked to remind.")

# It is idle again as soon as it waits for input.
idle() { until "$aos" inspect --json "$pid" | grep -q '"waiting_for":"stdin"'; do sleep 0.2; done; }

"$aos" send "$pid" "My dentist appointment is on Thursday at nine."
idle
"$aos" send "$pid" "Remind me in 2 seconds to drink some water."
idle

# Next day: everything is still there, and what was due meanwhile comes now.
"$aos" down
sleep 3
"$aos" up
sleep 1
idle
"$aos" send "$pid" "When do I have to be at the dentist?"
idle
"$aos" logs "$pid"
echo "try: aos attach $pid; aos memory list; aos kill $pid"
