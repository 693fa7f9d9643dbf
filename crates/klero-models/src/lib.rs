//! klero-models
