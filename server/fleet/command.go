package fleet

import (
	"fmt"
	"strings"
)

// Command is a command that exists for an object, and whether it is possible now. The rules are
// those by which the command itself is refused.
type Command struct {
	Name    string `json:"name" example:"pause"`
	Allowed bool   `json:"allowed"`
	// Why it is not possible now
	Reason string `json:"reason,omitempty"`
	// The one that the state of the object asks for
	Primary bool `json:"primary,omitempty"`
	// It stops or changes what runs on hosts beyond the plan
	Danger bool `json:"danger,omitempty"`
	// The call is refused without why
	NeedsReason bool `json:"needs_reason,omitempty"`
	// What to know before it is given, such as canaries that failed
	Warning string `json:"warning,omitempty"`
}

// Refusal is why a command on an object is not possible; nil: it is.
type Refusal struct {
	// Text follows the name of the object: "has not been started: start it, or delete it".
	Text string
	// Done means that the command was given before, or would change nothing. It is accepted, so
	// that calls can be repeated.
	Done bool
	// Code is that of the error, if programs distinguish it from others.
	Code string
}

// Refuse returns a refusal.
func Refuse(format string, args ...any) *Refusal { return &Refusal{Text: fmt.Sprintf(format, args...)} }

// RefuseDone is Refuse of a command that would change nothing.
func RefuseDone(format string, args ...any) *Refusal {
	return &Refusal{Text: fmt.Sprintf(format, args...), Done: true}
}

// Err returns the error of a command on the object of the given title.
func (r *Refusal) Err(title string) error {
	e := Errorf(Conflict, "%s %s", title, r.Text)
	e.Code = r.Code
	return e
}

// Reason returns the refusal as a sentence that does not name the object.
func (r *Refusal) Reason() string { return Sentence("it " + r.Text) }

// Command returns the command with the verdict of a refusal.
func (r *Refusal) Command(name string) Command {
	if r == nil {
		return Command{Name: name, Allowed: true}
	}
	return Command{Name: name, Reason: r.Reason()}
}

// Sentence begins a clause with a capital letter and ends it with a full stop.
func Sentence(clause string) string {
	if clause == "" {
		return ""
	}
	if c := clause[0]; 'a' <= c && c <= 'z' {
		clause = string(c-'a'+'A') + clause[1:]
	}
	if strings.ContainsRune(".!?", rune(clause[len(clause)-1])) {
		return clause
	}
	return clause + "."
}
