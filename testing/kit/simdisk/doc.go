// Package simdisk is a file system in memory that tracks both what running programs see and
// what a power cut would leave. The crash proof runs hosts on it and cuts the power at every
// call.
//
// # What is guaranteed
//
// POSIX guarantees little, and the model guarantees no more:
//
//   - fsync of a file makes its content durable, and nothing about its name;
//   - fsync of a folder makes the names in that folder durable as they are at
//     that moment (created, renamed, removed), and nothing about the contents
//     of the files they lead to, nor about the names in the folders below;
//   - a name whose parent folder is not durable is lost with it;
//   - nothing else is durable, and what is not durable reaches the disk in any
//     order: of two files, of two folders, and of a file and its name.
//
// The model assumes three guarantees of every journaling file system: a rename within one
// folder happens completely or not at all; a symbolic link has its target as soon as it has
// its name; a name or a mode is never half written.
//
// ext4 with its defaults (data=ordered, auto_da_alloc) guarantees more: names reach the
// disk in the order of the calls, the data of a file that is renamed over another one
// is written first, and fsync of a new file includes its name. XFS and btrfs guarantee
// different parts of that. A program that is safe here is safe on all of them; one that is
// safe only on ext4 is unsafe here.
//
// # What can be left
//
// [FS.Cuts] enumerates the outcomes of a power cut deterministically. Of the names that
// were not synced, all survive, or none, or only the earliest or the latest change in each
// folder, or those of one folder, or those of all folders except one. Contents that were
// not synced are lost, cut in the middle of the last write, zero from there on, completely
// zero, or complete. Each choice of names is combined with each choice of contents. Losing
// all names and contents is losing the cache ([Lose]); the others are torn writes.
//
// A program that is killed loses nothing, since its writes are in the system's cache. But
// it may be killed in the middle of a write, so each write is two calls, of which the
// second finds the first half written. Removing or creating a tree is one call for each
// name in it.
package simdisk
