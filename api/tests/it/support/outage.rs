//! A wire to Postgres that a test can cut and mend.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Wire {
    pub address: SocketAddr,
    up: watch::Sender<bool>,
    /// Connections that met the cut so far.
    turned_away: watch::Sender<usize>,
}

impl Wire {
    pub async fn to(host: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let up = watch::Sender::new(true);
        let turned_away = watch::Sender::new(0);
        let (state, count) = (up.clone(), turned_away.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut state = state.subscribe();
                let (host, count) = (host.clone(), count.clone());
                tokio::spawn(async move {
                    if !*state.borrow() {
                        count.send_modify(|count| *count += 1);
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(host).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = state.wait_for(|up| !up) => {}
                    }
                });
            }
        });
        Self { address, up, turned_away }
    }

    /// Every connection breaks, and no new one comes about.
    pub fn cut(&self) {
        self.up.send_replace(false);
    }

    /// Resolves when a connection has met the cut.
    pub async fn met(&self) {
        self.turned_away.subscribe().wait_for(|&count| count > 0).await.unwrap();
    }

    pub fn mend(&self) {
        self.up.send_replace(true);
    }
}
