//! Client of the API server, from `kube-client`. A build without the feature `client` has the same names without a
//! client.

#[cfg(feature = "client")]
pub use kube_client::Client;
#[cfg(feature = "client")]
pub(crate) use kube_client::client::Body;

#[cfg(not(feature = "client"))]
pub use absent::Client;
#[cfg(not(feature = "client"))]
pub(crate) type Body = http_body_util::Full<prost::bytes::Bytes>;

#[cfg(not(feature = "client"))]
mod absent {
    use std::io;

    use http::{Request, Response};

    use super::Body;

    /// Client of a build that has none: no credentials make one.
    #[derive(Clone, Debug)]
    pub struct Client(());

    #[expect(
        clippy::unused_async,
        clippy::unused_self,
        reason = "the methods have the signatures of the client that this build lacks"
    )]
    impl Client {
        pub(crate) async fn send(&self, _: Request<Body>) -> Result<Response<Body>, io::Error> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn default_namespace(&self) -> &'static str {
            "default"
        }
    }
}
