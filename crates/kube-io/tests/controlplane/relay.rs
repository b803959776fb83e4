//! Passes TCP connections on, and can cut them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    cut: watch::Sender<bool>,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, seen) = watch::channel(false);
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, opened) = (Arc::clone(&accepted), Arc::clone(&open));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                opened.fetch_add(1, Ordering::SeqCst);
                let (mut seen, opened) = (seen.clone(), Arc::clone(&opened));
                tokio::spawn(async move {
                    let passed = async {
                        let mut far = TcpStream::connect(to).await?;
                        tokio::io::copy_bidirectional(&mut near, &mut far).await
                    };
                    tokio::select! {
                        _ = passed => {}
                        _ = seen.wait_for(|cut| *cut) => {}
                    }
                    opened.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, cut, accepted, open }
    }

    /// Closes all connections, and new ones at once.
    pub(crate) async fn cut(&self) {
        self.cut.send_replace(true);
        while self.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }

    /// How many connections there were.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}
