package faults

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// program is the behaviour of an executable file of a simulated package.
type program struct {
	kind    string // agent or watcher
	version string
	life    life
	// file and home are where it was loaded from.
	file, home string
}

// life is the behaviour of a started program.
type life string

const (
	good      life = "good"
	exits     life = "exits"     // exits at once, before it does anything
	crashes   life = "crashes"   // crashes after crashAfter
	unhealthy life = "unhealthy" // runs, and fails a check of itself
	garbage   life = "garbage"   // is not a program: exec fails
	sound     life = "sound"     // runs, and the check of its package passes
	unsound   life = "unsound"   // runs, and the check of its package fails
	retreats  life = "retreats"  // a watcher that always rolls back after a crash
)

// crashAfter is long enough for an agent to start, check in and report that the upgrade
// succeeded, the hardest report to correct.
const crashAfter = 4 * time.Second

const (
	programHead = "simulated program\n"
	programTail = "end\n"
)

// text returns the file's content: a head, a body and a tail, so that no part of it is
// mistaken for the whole.
func (p program) text() string {
	if p.life == garbage {
		return "this is for another machine\n"
	}
	return fmt.Sprintf("%s%s %s %s\n%s", programHead, p.kind, p.version, p.life, programTail)
}

func parseProgram(text string) (program, error) {
	body, head := strings.CutPrefix(text, programHead)
	body, tail := strings.CutSuffix(body, programTail)
	f := strings.Fields(body)
	if !head || !tail || len(f) != 3 || strings.Contains(text, "\x00") {
		return program{}, syscall.ENOEXEC
	}
	p := program{kind: f[0], version: f[1], life: life(f[2])}
	if p.text() != text {
		return program{}, errors.New("the program was changed")
	}
	return p, nil
}
