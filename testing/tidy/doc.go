// Package tidy keeps the rules about the repository itself as tests: which
// package may import which, that every package says what it is for, that no file
// is dead or foreign, that documented commands exist, that generated code is
// current. A finding says what is wrong, why the rule is there, and what to do.
//
// It reads the files git would commit: the tracked ones and the new ones that are
// not ignored.
package tidy
