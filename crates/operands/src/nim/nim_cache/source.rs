//! Model sources, with their differences in one place.

use capstan_api::nim::cache_source::{DataStoreSource, HuggingFaceSource, NgcSource};

use super::Cx;

/// The source of a cache.
pub(super) enum Source<'a> {
    /// NGC.
    Ngc(&'a NgcSource),
    /// Hugging Face, or a compatible server.
    HuggingFace(&'a HuggingFaceSource),
    /// NeMo Data Store.
    DataStore(&'a DataStoreSource),
    /// None; the schema prevents it.
    None,
}

/// A Hugging Face compatible repository.
pub(super) struct Repository<'a> {
    pub(super) endpoint: &'a str,
    pub(super) namespace: &'a str,
    pub(super) model: Option<&'a str>,
    pub(super) dataset: Option<&'a str>,
    pub(super) revision: Option<&'a str>,
}

impl<'a> Source<'a> {
    pub(super) fn of(cx: &Cx<'a>) -> Self {
        let source = &cx.spec().source;
        if let Some(ngc) = &source.ngc {
            Self::Ngc(ngc)
        } else if let Some(hf) = &source.hf {
            Self::HuggingFace(hf)
        } else if let Some(store) = &source.data_store {
            Self::DataStore(store)
        } else {
            Self::None
        }
    }

    /// The image that downloads.
    pub(super) fn image(&self) -> &'a str {
        match self {
            Self::Ngc(ngc) => &ngc.model_puller,
            Self::HuggingFace(hf) => &hf.model_puller,
            Self::DataStore(store) => &store.model_puller,
            Self::None => "",
        }
    }

    /// Secret with the keys of the source.
    pub(super) fn auth_secret(&self) -> Option<&'a str> {
        let name = match self {
            Self::Ngc(ngc) => ngc.auth_secret.as_str(),
            Self::HuggingFace(hf) => hf.auth_secret.as_str(),
            Self::DataStore(store) => store.auth_secret.as_str(),
            Self::None => "",
        };
        Some(name).filter(|name| !name.is_empty())
    }

    /// Secret that pulls the image.
    pub(super) fn pull_secret(&self) -> Option<&'a str> {
        let name = match self {
            Self::Ngc(ngc) => ngc.pull_secret.as_deref().unwrap_or_default(),
            Self::HuggingFace(hf) => hf.pull_secret.as_str(),
            Self::DataStore(store) => store.pull_secret.as_str(),
            Self::None => "",
        };
        Some(name).filter(|name| !name.is_empty())
    }

    /// Model URL for a model-free image.
    pub(super) fn endpoint(&self) -> Option<&'a str> {
        match self {
            Self::Ngc(ngc) => ngc.model_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()),
            _ => None,
        }
    }

    /// The repository, if it is Hugging Face compatible.
    pub(super) fn repository(&self) -> Option<Repository<'a>> {
        match self {
            Self::HuggingFace(hf) => Some(Repository {
                endpoint: &hf.endpoint,
                namespace: &hf.namespace,
                model: hf.model_name.as_deref(),
                dataset: hf.dataset_name.as_deref(),
                revision: hf.revision.as_deref(),
            }),
            Self::DataStore(store) => Some(Repository {
                endpoint: &store.endpoint,
                namespace: &store.namespace,
                model: store.model_name.as_deref(),
                dataset: store.dataset_name.as_deref(),
                revision: store.revision.as_deref(),
            }),
            _ => None,
        }
    }
}
