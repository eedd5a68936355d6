//! Records of partitions on one shard's disk.
