//! Authentication and authorization that the cluster's API server decides.
//!
//! For a server behind an `APIService`: callers are known by the front proxy's headers, by a client
//! certificate, or by a token that a [`TokenReviewer`] judges; what they may do, an
//! [`AccessReviewer`] judges. Answers are kept for [`TTL`]; what a review failed on is not. Whoever
//! asks the same meanwhile waits for the same answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::header::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::authn::{Authenticator, Credentials};
use crate::authz::{Attributes, Authorizer, Decision, Target};
use crate::pki::user_of_certificate;
use crate::query::percent_decode;
use crate::status::ApiError;
use crate::trust::{ClientTrust, FrontProxy, Holder};
use crate::user::{AUTHENTICATED, MASTERS, User};

/// How long an answer holds.
pub const TTL: Duration = Duration::from_secs(10);
/// How many answers are kept.
const KEPT: usize = 8192;
/// Reviews of one kind that are under way at most: a crowd that comes at once, as all agents do
/// after a restart, must not open a connection each.
const AT_ONCE: usize = 32;

/// Why a review has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReviewError(pub String);

/// Asks the cluster whose token something is.
pub trait TokenReviewer: Send + Sync {
    /// The user of a token; `None` when the cluster refuses it.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>>;
}

/// Asks the cluster whether somebody may do something.
pub trait AccessReviewer: Send + Sync {
    /// The cluster's judgement.
    fn review<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>>;
}

/// Answers that hold for a while. One question is asked once however many wait for its answer.
struct Kept<K, V> {
    answers: Mutex<HashMap<K, (V, Instant)>>,
    /// Whose turn it is to ask a question.
    turns: Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>,
    permits: Semaphore,
}

impl<K: Eq + Hash + Clone, V: Clone> Kept<K, V> {
    fn new() -> Self {
        Self {
            answers: Mutex::default(),
            turns: Mutex::default(),
            permits: Semaphore::new(AT_ONCE),
        }
    }

    /// The answer that is kept, or the one that `ask` gives. Errors are not kept.
    async fn answer<E, F>(&self, key: &K, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        if let Some(answer) = self.get(key) {
            return Ok(answer);
        }
        let turn = self.turn(key);
        let _mine = turn.lock().await;
        if let Some(answer) = self.get(key) {
            return Ok(answer);
        }
        let _permit = self.permits.acquire().await;
        let answer = ask().await?;
        self.put(key.clone(), answer.clone());
        Ok(answer)
    }

    fn turn(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() >= KEPT {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }

    fn get(&self, key: &K) -> Option<V> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers
            .get(key)
            .filter(|(_, until)| Instant::now() < *until)
            .map(|(value, _)| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if answers.len() >= KEPT {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= KEPT {
            answers.clear();
        }
        answers.insert(key, (value, now + TTL));
    }
}

/// Takes front proxies, client certificates and tokens of the cluster.
pub struct Authentication<T> {
    trust: ClientTrust,
    tokens: T,
    kept: Kept<[u8; 32], Option<User>>,
}

impl<T: TokenReviewer> Authentication<T> {
    /// Believes certificates as `trust` says and has tokens reviewed.
    pub fn new(trust: ClientTrust, tokens: T) -> Self {
        Self { trust, tokens, kept: Kept::new() }
    }

    async fn user(&self, credentials: &Credentials) -> Result<User, ApiError> {
        let chain = credentials.peer.as_ref().map_or(&[][..], |peer| &peer.chain);
        match self.trust.judge(chain) {
            Holder::FrontProxy => {
                let trusted = self.trust.trusted();
                let proxy = trusted.front_proxy.clone().unwrap_or_default();
                if let Some(user) = remote_user(&proxy, &credentials.headers) {
                    return Ok(user);
                }
            }
            Holder::User => {
                if let Some(user) = chain.first().and_then(|end| user_of_certificate(end)) {
                    return Ok(user);
                }
            }
            Holder::Nobody => {}
        }
        let Some(token) = credentials.bearer.as_deref() else { return Ok(User::anonymous()) };
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let user = self.kept.answer(&key, || self.tokens.review(token)).await.map_err(|error| {
            ApiError::unavailable(format!("the token cannot be reviewed now: {error}"))
        })?;
        user.ok_or_else(ApiError::unauthorized)
    }
}

impl<T: TokenReviewer> Authenticator for Authentication<T> {
    fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<User, ApiError>> {
        Box::pin(self.user(credentials))
    }
}

/// The user on whose behalf a front proxy asks.
fn remote_user(proxy: &FrontProxy, headers: &HeaderMap) -> Option<User> {
    let values = |name: &str| -> Vec<String> {
        let all = headers.get_all(name).into_iter();
        all.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let first = |names: &[String]| {
        names.iter().find_map(|name| values(name).into_iter().find(|value| !value.is_empty()))
    };
    let mut user = User {
        username: first(&proxy.user_headers)?,
        uid: first(&proxy.uid_headers).unwrap_or_default(),
        groups: proxy.group_headers.iter().flat_map(|name| values(name)).collect(),
        ..User::default()
    };
    for name in headers.keys() {
        let key = proxy.extra_prefixes.iter().find_map(|p| name.as_str().strip_prefix(p.as_str()));
        if let Some(key) = key {
            user.extra.insert(percent_decode(key), values(name.as_str()));
        }
    }
    if !user.groups.iter().any(|own| own == AUTHENTICATED || own == "system:unauthenticated") {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    Some(user)
}

/// Lets the cluster judge what is not open to all.
pub struct Authorization<A> {
    reviewer: A,
    open: Vec<String>,
    kept: Kept<Attributes, Decision>,
}

impl<A: AccessReviewer> Authorization<A> {
    /// Paths in `open` (a closing `*` stands for anything) are for everybody, as webhooks and
    /// health checks must be.
    pub fn new(reviewer: A, open: &[&str]) -> Self {
        let open = open.iter().map(|path| (*path).to_owned()).collect();
        Self { reviewer, open, kept: Kept::new() }
    }

    fn is_open(&self, act: &Attributes) -> bool {
        let Target::Path(path) = &act.object else { return false };
        self.open.iter().any(|open| match open.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == open,
        })
    }

    async fn decide(&self, act: &Attributes) -> Result<Decision, ApiError> {
        if act.user.in_group(MASTERS) || self.is_open(act) {
            return Ok(Decision { allowed: true, reason: String::new() });
        }
        self.kept.answer(act, || self.reviewer.review(act)).await.map_err(|error| {
            ApiError::unavailable(format!("access cannot be reviewed now: {error}"))
        })
    }
}

impl<A: AccessReviewer> Authorizer for Authorization<A> {
    fn authorize<'a>(&'a self, act: &'a Attributes) -> BoxFuture<'a, Result<Decision, ApiError>> {
        Box::pin(self.decide(act))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::pki::{Authority, certificates_from_pem};
    use crate::server::Peer;
    use crate::trust::Trusted;

    #[derive(Default)]
    struct Cluster(Arc<AtomicUsize>);

    impl TokenReviewer for Cluster {
        fn review<'a>(
            &'a self,
            token: &'a str,
        ) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let user = (token == "good").then(|| User::new("agent", [""; 0]));
            let answer =
                if token == "down" { Err(ReviewError("down".to_owned())) } else { Ok(user) };
            Box::pin(async move { answer })
        }
    }

    impl AccessReviewer for Cluster {
        fn review<'a>(
            &'a self,
            act: &'a Attributes,
        ) -> BoxFuture<'a, Result<Decision, ReviewError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let allowed = act.verb == "list";
            Box::pin(async move { Ok(Decision { allowed, reason: String::new() }) })
        }
    }

    fn mk_credentials(bearer: Option<&str>, chain: Option<&str>) -> Credentials {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "carol"),
            ("x-remote-group", "one"),
            ("x-remote-group", "two"),
            ("x-remote-uid", "u-1"),
            ("x-remote-extra-authentication.kubernetes.io%2fnode-name", "n1"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let chain = certificates_from_pem(chain.unwrap_or("")).into();
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), certificate: None, chain };
        Credentials { bearer: bearer.map(str::to_owned), peer: Some(peer), headers }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_are_known_by_proxy_certificate_or_token() {
        let (proxies, users) =
            (Authority::create("proxies").unwrap(), Authority::create("users").unwrap());
        let trust = ClientTrust::new();
        let front_proxy =
            FrontProxy { ca_pem: proxies.cert_pem().to_owned(), ..FrontProxy::default() };
        let client_ca_pem = users.cert_pem().to_owned();
        trust.replace(Trusted { client_ca_pem, front_proxy: Some(front_proxy) }).unwrap();
        let reviews = Arc::new(AtomicUsize::new(0));
        let authentication = Authentication::new(trust, Cluster(Arc::clone(&reviews)));
        let who = async |bearer: Option<&str>, chain: Option<&str>| {
            authentication.authenticate(&mk_credentials(bearer, chain)).await.map_err(|e| e.code)
        };

        let proxy = proxies.issue_client("front", None).unwrap().cert_pem;
        let carol = who(None, Some(&proxy)).await.unwrap();
        assert_eq!((carol.username.as_str(), carol.uid.as_str()), ("carol", "u-1"));
        assert_eq!(carol.groups, ["one", "two", AUTHENTICATED]);
        assert_eq!(carol.node(), Some("n1"));

        let alice = users.issue_client("alice", None).unwrap().cert_pem;
        assert_eq!(who(None, Some(&alice)).await.unwrap().username, "alice", "headers are forged");
        assert_eq!(who(None, None).await.unwrap(), User::anonymous(), "headers are forged");

        for _ in 0..3 {
            assert_eq!(who(Some("good"), None).await.unwrap().username, "agent");
            assert_eq!(who(Some("bad"), None).await, Err(401));
        }
        assert_eq!(reviews.load(Ordering::Relaxed), 2, "answers are kept");
        tokio::time::advance(TTL).await;
        who(Some("good"), None).await.unwrap();
        assert_eq!(who(Some("down"), None).await, Err(503));
        assert_eq!(who(Some("down"), None).await, Err(503));
        assert_eq!(reviews.load(Ordering::Relaxed), 5, "failures are not kept");
    }

    #[tokio::test]
    async fn a_crowd_asks_once_for_each_answer_and_never_all_at_once() {
        let kept = Kept::<usize, usize>::new();
        let (asked, now, most) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
        let ask = async |key: usize| {
            asked.fetch_add(1, Ordering::Relaxed);
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::Relaxed);
            Ok::<usize, ()>(key * 2)
        };
        let crowd = (0..1000_usize).map(|n| {
            let (kept, ask) = (&kept, &ask);
            async move { (n, kept.answer(&(n % 100), || ask(n % 100)).await) }
        });
        for (n, answer) in futures::future::join_all(crowd).await {
            assert_eq!(answer, Ok(n % 100 * 2));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 100);
        assert_eq!(most.load(Ordering::Relaxed), AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cluster_judges_what_is_not_open() {
        let reviews = Arc::new(AtomicUsize::new(0));
        let open = ["/healthz", "/validate/*"];
        let authorization = Authorization::new(Cluster(Arc::clone(&reviews)), &open);
        let may = async |user: User, verb: &str, path: &str| {
            let object = Target::Path(path.to_owned());
            let act = Attributes { user, verb: verb.to_owned(), object };
            authorization.authorize(&act).await.unwrap().allowed
        };
        let bob = || User::new("bob", [""; 0]);
        for (user, verb, path, want) in [
            (User::anonymous(), "get", "/healthz", true),
            (User::anonymous(), "post", "/validate/acnp", true),
            (User::anonymous(), "get", "/healthz/x", false),
            (User::new("root", [MASTERS]), "get", "/x", true),
            (bob(), "list", "/x", true),
            (bob(), "list", "/x", true),
            (bob(), "get", "/x", false),
        ] {
            assert_eq!(may(user.clone(), verb, path).await, want, "{user:?} {verb} {path}");
        }
        assert_eq!(reviews.load(Ordering::Relaxed), 3);
    }
}
