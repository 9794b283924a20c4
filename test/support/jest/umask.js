// The gateway refuses files that others can write, which some systems' umask (002) would make of all that tests write.
process.umask(0o022);
