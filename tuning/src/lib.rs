//! Host checks and disk calibration.
