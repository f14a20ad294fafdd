//! What the operating system says of the daemon: processor time, from `/proc/PID/stat` (proc(5)).

use std::time::Duration;

use crate::Failure;

/// Processor time so far, in user and kernel mode, all threads together. A tick is a hundredth of a second on Linux.
pub(crate) fn processor_time(pid: u32) -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}
