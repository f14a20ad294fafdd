//! Serves a script file as a model: `scripted FILE.toml` (or `.json`) prints its `base_url` and answers until it is ended.
//!
//! The examples of this repository run against it where no real model is at hand. The format is
//! [`aos_models::scripted::Script`]. It listens on a free port of 127.0.0.1, or on the one given after the file.

use std::process::ExitCode;

use aos_models::Provider;
use aos_models::scripted::{Script, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: scripted FILE.toml|FILE.json [PORT]");
        return ExitCode::from(2);
    };
    match serve(&file, arguments.next().as_deref().unwrap_or("0")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {file}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(file: &str, port: &str) -> Result<(), Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file)?;
    let script: Script = if file.ends_with(".json") { serde_json::from_str(&text)? } else { toml::from_str(&text)? };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse::<u16>()?)).await?;
    let server = Server::start_on(listener, script)?;
    println!("{}", server.base_url(Provider::Openai));
    // Whoever started it reads that line from a pipe, so it must not wait in a buffer for the next one.
    std::io::Write::flush(&mut std::io::stdout())?;
    tokio::signal::ctrl_c().await?;
    Ok(())
}
