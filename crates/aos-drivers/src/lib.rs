//! Drivers: what carries out an allowed system call, one folder per driver.
//!
//! Start at [`fs`], [`net`], [`exec`] and [`watch`]. Each driver of a call has one entry point that takes a permit, which only the dispatch after policy can make,
//! so a path round the policy does not compile. A driver trusts none of its arguments all the same: paths, addresses
//! and patterns are parsed here once more, at the place that touches the machine.
//!
//! With a permit each is called so:
//!
//! ```
//! use aos_drivers::{exec, fs, net};
//! use aos_policy::Permit;
//! fn file(driver: &fs::Driver, permit: Permit, place: &fs::Place) {
//!     let _ = driver.call(permit, place, None, &|| false);
//! }
//! fn command(driver: &exec::Driver, permit: Permit, scene: exec::Scene, cancel: &aos_sandbox::Cancel) {
//!     let _ = driver.call(permit, scene, cancel);
//! }
//! async fn request(driver: &net::Driver, permit: Permit, trip: net::Trip<'_>) {
//!     let _ = driver.call(permit, trip).await;
//! }
//! ```
//! and with the call alone, which is all that an agent says, none of them compiles:
//!
//! ```compile_fail,E0308
//! use aos_drivers::fs;
//! fn file(driver: &fs::Driver, call: aos_abi::Syscall, place: &fs::Place) {
//!     let _ = driver.call(call, place, None, &|| false);
//! }
//! ```
//! ```compile_fail,E0308
//! use aos_drivers::exec;
//! fn command(driver: &exec::Driver, call: aos_abi::Syscall, scene: exec::Scene, cancel: &aos_sandbox::Cancel) {
//!     let _ = driver.call(call, scene, cancel);
//! }
//! ```
//! ```compile_fail,E0308
//! use aos_drivers::net;
//! async fn request(driver: &net::Driver, call: aos_abi::Syscall, trip: net::Trip<'_>) {
//!     let _ = driver.call(call, trip).await;
//! }
//! ```
//! Nor does what they do with the call once it has its permit, which is theirs:
//!
//! ```compile_fail,E0624
//! use aos_drivers::exec;
//! fn command(driver: &exec::Driver, call: aos_abi::Syscall, scene: exec::Scene, cancel: &aos_sandbox::Cancel) {
//!     let _ = driver.perform(call, scene, cancel);
//! }
//! ```
//! A permit is one call, so a driver is called once with it:
//!
//! ```compile_fail,E0382
//! use aos_drivers::fs;
//! fn twice(driver: &fs::Driver, permit: aos_policy::Permit, place: &fs::Place) {
//!     let _ = driver.call(permit, place, None, &|| false);
//!     let _ = driver.call(permit, place, None, &|| false);
//! }
//! ```
//!
//! A watch takes none: it outlives the call that asked for it, and the daemon starts it anew after a restart.
//!
//! Deliberately absent: verdicts (`aos-policy`), the journal, and any state that outlives a call.

mod content;
pub mod exec;
pub mod fs;
pub mod net;
pub mod watch;
