// SPDX-License-Identifier: Apache-2.0
//! A shell on a serial line, for what cannot be asked of a guest agent that is gone.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::LIMIT;

/// The shell. It ends with `exit`.
#[derive(Debug)]
pub struct Witness {
    line: BufReader<UnixStream>,
    asked: usize,
}

impl Witness {
    /// A shell that has just been started at the other end.
    pub async fn new(port: UnixStream) -> Self {
        let mut witness = Self {
            line: BufReader::new(port),
            asked: 0,
        };
        witness.run("stty -echo; PS1=; PS2=").await;
        witness
    }

    /// Runs a line; what it printed.
    pub async fn run(&mut self, script: &str) -> String {
        self.asked += 1;
        // Spelt so that an echo of the request is not the mark.
        let request = format!("{script}\necho e'nd' {}\n", self.asked);
        let mark = format!("end {}", self.asked);
        let ran = async {
            let stream = self.line.get_mut();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            loop {
                let mut line = String::new();
                let read = self.line.read_line(&mut line).await.unwrap();
                assert_ne!(read, 0, "the line is cut after `{text}`");
                if line.contains(&mark) {
                    return text;
                }
                text.push_str(line.trim_end_matches(['\r', '\n']));
                text.push('\n');
            }
        };
        let ran = tokio::time::timeout(LIMIT, ran).await;
        ran.unwrap_or_else(|_| panic!("no end of `{script}` on the serial line"))
    }

    /// Ends the shell.
    pub async fn leave(mut self) {
        let stream = self.line.get_mut();
        stream.write_all(b"exit\n").await.unwrap();
    }
}
