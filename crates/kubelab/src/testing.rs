//! A server for tests: on a port of its own of 127.0.0.1, with a directory that goes with it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::client::{Client, Credential};
use crate::server::{Options, RunningServer, Server, ServerError};

/// A running server for a test.
pub struct TestServer {
    /// The server.
    pub server: RunningServer,
    /// Where it is reached, as `https://127.0.0.1:41641`.
    pub url: String,
    dir: PathBuf,
}

impl TestServer {
    /// A directory that is removed with the server.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A kubeconfig whose user may do everything.
    pub fn admin_kubeconfig(&self) -> Result<String, ServerError> {
        self.server.admin_kubeconfig(&self.url)
    }

    /// A client that may do everything.
    pub fn admin_client(&self) -> Result<Client, ServerError> {
        let credential = Credential::Certificate(self.server.admin_identity()?);
        self.client(credential)
    }

    /// A client with the given credential.
    pub fn client(&self, credential: Credential) -> Result<Client, ServerError> {
        Client::new(&self.url, self.server.ca_pem(), credential)
            .map_err(|error| ServerError::Manifest(error.to_string()))
    }

    /// Writes the administrator's kubeconfig to a file and gives its path.
    pub fn write_kubeconfig(&self) -> Result<PathBuf, ServerError> {
        let path = self.dir.join("admin.kubeconfig");
        std::fs::write(&path, self.admin_kubeconfig()?).map_err(ServerError::DataDir)?;
        Ok(path)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Starts a server with the usual settings.
pub async fn start() -> Result<TestServer, ServerError> {
    start_with(|_| {}).await
}

/// Starts a server after `adjust` changed its settings; listener and directory are set already.
pub async fn start_with(adjust: impl FnOnce(&mut Options)) -> Result<TestServer, ServerError> {
    let dir = std::env::temp_dir().join(format!("kubelab-{}", uuid::Uuid::new_v4()));
    let mut options = Options::new(&dir);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(ServerError::Listener)?;
    let address = listener.local_addr().map_err(ServerError::Listener)?;
    options.listeners.push(listener);
    adjust(&mut options);
    let server = Server::start(options).await?;
    Ok(TestServer { server, url: format!("https://{address}"), dir })
}
