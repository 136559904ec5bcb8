// Package simdisk is a file system in memory that knows two truths: what
// running programs see, and what would be left if the power went now. The crash
// proof runs hosts on it and cuts the power at every call.
//
// # What is promised
//
// POSIX promises little, and the model gives no more than that:
//
//   - fsync of a file makes its content durable, and nothing about its name;
//   - fsync of a folder makes the names in that folder durable as they are at
//     that moment (created, renamed, removed), and nothing about the contents
//     of the files they lead to, nor about the names in the folders below;
//   - a name whose parent folder is not durable is lost with it;
//   - nothing else is durable, and nothing says in which order what is not
//     durable reaches the disk: not between two files, not between two folders,
//     not between a file and its name.
//
// Three things are taken for granted, as every journaling file system gives
// them: a rename within one folder happens whole or not at all; a symbolic link
// has its target as soon as it has its name; a name or a mode is never half
// written.
//
// ext4 with its defaults (data=ordered, auto_da_alloc) is kinder: names reach the
// disk in the order they were made, the data of a file that is renamed over
// another one goes first, and fsync of a new file brings its name along. XFS and
// btrfs each give a different part of that. A program that is safe here is safe
// on all of them; one that is safe on ext4 only shows as unsafe here.
//
// # What can be left
//
// [FS.Cuts] enumerates the outcomes of a power cut; there is no chance in it.
// Names that were not synced survive all, or none, or only the earliest or the
// latest change in each folder, or those of one folder alone, or those of all
// folders but one. Contents that were not synced survive not at all, cut in the
// middle of the last write, with zeros from there on, as zeros altogether, or
// whole. Each choice of names goes with each choice of contents. None of names
// with none of contents is what people call losing the cache ([Lose]); the rest
// are torn writes.
//
// A program that is killed loses nothing: what it wrote is in the system's
// cache. But it may be killed in the middle of a write; so each write is two
// calls, of which the second finds the first half written. Removing or making a
// tree is as many calls as it has names.
package simdisk
