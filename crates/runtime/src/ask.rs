//! Questions that plans have, asked between two decisions: each in a task of its own, for as long as plans name it.
//!
//! A key is looked at again only when an answer changes, so that asking costs the API server nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_plan::{Answer, Question};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::cache::Key;
use crate::queue::Queue;

/// The first pause after a failure; it doubles up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// The longest pause after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// After so many failures in a row there is no answer; before that an endpoint may just be starting.
const MAX_FAILURES: u32 = 3;
/// Questions that are asked at once.
const CONCURRENCY: usize = 32;

/// How a question is asked: an answer, or why there is none.
pub type How = Arc<dyn Fn(Question) -> BoxFuture<'static, Result<Answer, Silence>> + Send + Sync>;

/// What can be told without asking anybody.
pub type Known = Arc<dyn Fn(&Question) -> Option<Answer> + Send + Sync>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// Whoever was asked does not answer.
    #[error("{0}")]
    Theirs(String),
    /// We could not even ask, as while the API server is away: that says nothing about whom we wanted to ask.
    #[error("{0}")]
    Ours(String),
}

impl From<String> for Silence {
    fn from(why: String) -> Self {
        Self::Theirs(why)
    }
}

/// Asks questions and keeps the answers. Clones share one state.
#[derive(Clone)]
pub struct Asker {
    shared: Arc<Shared>,
}

struct Shared {
    how: How,
    known: Known,
    queue: Queue<Key>,
    limit: Semaphore,
    /// A list for each key, since it has one or two questions and there are many keys.
    asked: Mutex<HashMap<Key, Vec<(Question, Asked)>>>,
}

struct Asked {
    answer: Option<Answer>,
    /// Ends with the interest in the question. There is none where all is known.
    _task: Option<AbortOnDropHandle<()>>,
}

/// How often in a row there was no answer.
#[derive(Default)]
struct Failures {
    times: u32,
    why: String,
}

impl Failures {
    /// Counts one more. A reason other than the one that was told is no news until it has come as often: a server that
    /// starts says things that are not so a moment later.
    fn another(&mut self, why: &str) -> u32 {
        let told = self.times >= MAX_FAILURES;
        self.times = if told && self.why != why { 1 } else { self.times.saturating_add(1) };
        why.clone_into(&mut self.why);
        self.times
    }
}

impl Asker {
    /// Asks as `how` says what is not `known` already, and adds a key to `queue` when an answer for it changes.
    pub fn new(how: How, known: Known, queue: Queue<Key>) -> Self {
        let shared = Shared { how, known, queue, limit: Semaphore::new(CONCURRENCY), asked: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// What is known for a key.
    pub fn answers(&self, key: &Key) -> BTreeMap<Question, Answer> {
        let asked = self.asked();
        let known = asked.get(key).into_iter().flatten();
        known.filter_map(|(question, asked)| Some((question.clone(), asked.answer.clone()?))).collect()
    }

    /// Asks these questions for a key, and no others any more. Says whether one of them is answered at once.
    pub fn ask(&self, key: &Key, questions: &[Question]) -> bool {
        let mut asked = self.asked();
        if questions.is_empty() {
            asked.remove(key);
            return false;
        }
        let mine = asked.entry(key.clone()).or_default();
        mine.retain(|(question, _)| questions.contains(question));
        let mut answered = false;
        for question in questions {
            if mine.iter().all(|(known, _)| known != question) {
                let asked = match (self.shared.known)(question).filter(|_| question.refresh().is_none()) {
                    Some(answer) => Asked { answer: Some(answer), _task: None },
                    None => self.begin(key, question),
                };
                answered |= asked.answer.is_some();
                mine.push((question.clone(), asked));
            }
        }
        mine.shrink_to_fit();
        answered
    }

    /// Asks until the answer lasts, or nobody is interested any more.
    fn begin(&self, key: &Key, question: &Question) -> Asked {
        // Weak, because the state holds the task.
        let (shared, key, question) = (Arc::downgrade(&self.shared), key.clone(), question.clone());
        let task = tokio::spawn(async move {
            let mut failures = Failures::default();
            while let Some(shared) = shared.upgrade() {
                let pause = shared.turn(&key, &question, &mut failures).await;
                drop(shared);
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return,
                }
            }
        });
        Asked { answer: None, _task: Some(AbortOnDropHandle::new(task)) }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Key, Vec<(Question, Asked)>>> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Asks once, and says when to ask again.
    async fn turn(&self, key: &Key, question: &Question, failures: &mut Failures) -> Option<Duration> {
        let result = {
            let _turn = self.limit.acquire().await.ok()?;
            (self.how)(question.clone()).await
        };
        match result {
            Ok(answer) => {
                *failures = Failures::default();
                self.keep(key, question, answer);
                question.refresh()
            }
            Err(Silence::Ours(why)) => {
                tracing::debug!(object = %key, ?question, why, "question cannot be asked");
                // What is known stands.
                Some(FIRST_BACKOFF)
            }
            Err(Silence::Theirs(why)) => {
                let times = failures.another(&why);
                tracing::debug!(object = %key, ?question, why, times, "question failed; retrying");
                if times >= MAX_FAILURES
                    && let Some(answer) = question.unanswered(why)
                {
                    self.keep(key, question, answer);
                }
                Some(MAX_BACKOFF.min(FIRST_BACKOFF * 2_u32.saturating_pow(times.saturating_sub(1).min(8))))
            }
        }
    }

    fn keep(&self, key: &Key, question: &Question, answer: Answer) {
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get_mut(key).and_then(|known| known.iter_mut().find(|(known, _)| known == question));
        let Some((_, asked)) = known else { return };
        if asked.answer.as_ref() != Some(&answer) {
            asked.answer = Some(answer);
            drop(all);
            self.queue.add(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn model() -> Question {
        Question::Model { url: "http://x".into(), revision: "1".into() }
    }

    fn asker(answers: impl Fn(usize) -> Result<String, Silence> + Send + Sync + 'static) -> (Asker, Queue<Key>, Key) {
        let count = AtomicUsize::new(0);
        let how: How = Arc::new(move |_| {
            let answer = answers(count.fetch_add(1, Ordering::SeqCst));
            Box::pin(async move { answer.map(|name| Answer::Model(Ok(name))) })
        });
        let queue = Queue::default();
        (Asker::new(how, Arc::new(|_| None), queue.clone()), queue, Key::new("ns", "a"))
    }

    fn refused() -> Silence {
        Silence::Theirs("refused".into())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_stands_while_we_cannot_ask() {
        let (asker, queue, key) =
            asker(|turn| Err(if turn < 3 { refused() } else { Silence::Ours("no API server".into()) }));
        asker.ask(&key, &[model()]);
        assert_eq!(queue.next().await, key);
        queue.done(&key);
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
        assert_eq!(asker.answers(&key)[&model()], Answer::Model(Err("refused".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn another_reason_is_told_only_when_it_lasts() {
        let (asker, queue, key) = asker(|turn| {
            Err(Silence::Theirs(if turn == 4 || turn > 6 { "forbidden" } else { "no such Secret" }.into()))
        });
        asker.ask(&key, &[model()]);
        for expected in ["no such Secret", "forbidden"] {
            assert_eq!(queue.next().await, key);
            queue.done(&key);
            assert_eq!(asker.answers(&key)[&model()], Answer::Model(Err(expected.into())));
        }
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_answered_at_once_and_never_asked() {
        let labels = Answer::Image(Ok(Vec::new()));
        let (how, known): (How, Known) = {
            let labels = labels.clone();
            (Arc::new(|question| panic!("asked {question:?}")), Arc::new(move |_| Some(labels.clone())))
        };
        let queue = Queue::default();
        let (asker, key) = (Asker::new(how, known, queue.clone()), Key::new("ns", "a"));
        let image = Question::Image(capstan_plan::Image { name: "nim/llama".into(), ..Default::default() });
        assert!(asker.ask(&key, std::slice::from_ref(&image)));
        assert_eq!(asker.answers(&key), BTreeMap::from([(image.clone(), labels)]));
        assert!(!asker.ask(&key, &[image]), "it was answered before");
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_wakes_its_key_once() {
        let (asker, queue, key) = asker(|_| Ok("llama".into()));
        asker.ask(&key, &[model()]);
        assert_eq!(queue.next().await, key);
        queue.done(&key);
        assert_eq!(asker.answers(&key)[&model()], Answer::Model(Ok("llama".into())));
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_may_fail_twice_and_then_it_is_silent_until_it_answers() {
        let (asker, queue, key) =
            asker(|turn| if (1..=3).contains(&turn) { Err(refused()) } else { Ok("llama".into()) });
        asker.ask(&key, &[model()]);
        for expected in [Ok("llama".into()), Err("refused".into()), Ok("llama".into())] {
            assert_eq!(queue.next().await, key);
            queue.done(&key);
            assert_eq!(asker.answers(&key)[&model()], Answer::Model(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_plan_names_is_not_asked_any_more() {
        let (asker, queue, key) = asker(|turn| Ok(turn.to_string()));
        asker.ask(&key, &[model()]);
        queue.next().await;
        queue.done(&key);
        asker.ask(&key, &[]);
        assert!(asker.answers(&key).is_empty());
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }
}
