// Package architecture has tests of the repository itself: which package may import which,
// that every package has a comment, that no file is unused or machine-specific, that
// documented commands exist, and that generated code is current. A finding says what is
// wrong, the reason of the rule, and what to do.
//
// The tests read the files that git would commit: the tracked ones, and new ones that are
// not ignored.
package architecture
