//! Metrics and health over HTTP, on a thread of its own with a single-threaded tokio: nothing here runs on a shard.
//!
//! | path | answer |
//! |---|---|
//! | /metrics | Prometheus text |
//! | /healthz | 200 while the process lives |
//! | /readyz | 200 while clients are served, else 503 |

use crate::{metrics, process::Process};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, PoisonError, atomic::Ordering},
    thread::{self, JoinHandle},
};
use tokio::sync::oneshot;

/// The running server.
#[derive(Debug)]
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves `listener`, which is bound already so that a taken port is an error of the start.
    pub(crate) fn start(listener: TcpListener, process: Arc<Process>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("corelane-http".to_owned()).spawn(move || {
            let served = runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let server = std::future::IntoFuture::into_future(axum::serve(listener, router(process)));
                tokio::select! {
                    served = server => served,
                    // Scrapes in progress are not waited for.
                    _ = stopped => Ok(()),
                }
            });
            if let Err(error) = served {
                tracing::error!("HTTP ended: {error}");
            }
        })?;
        Ok(HttpServer { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // An error means that the server has ended already.
        let _ended = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP thread panicked");
        }
    }
}

fn router(process: Arc<Process>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(process)
}

async fn metrics_text(State(process): State<Arc<Process>>) -> impl IntoResponse {
    let snapshots = process.snapshots.iter().map(|slot| Arc::clone(&slot.lock().unwrap_or_else(PoisonError::into_inner)));
    let snapshots: Vec<_> = snapshots.collect();
    let text = metrics::render(&snapshots, process.is_ready.load(Ordering::Relaxed), process.groups_named_max);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn ready(State(process): State<Arc<Process>>) -> (StatusCode, &'static str) {
    if process.is_ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n")
    }
}
