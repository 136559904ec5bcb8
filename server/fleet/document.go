package fleet

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// AsRead returns an agent that a store has read. It holds a copy of itself, for Differs and
// EndedUpgrades. The copy is shallow: callers that change an Agent replace its slices and
// times, and never write into them.
func (a Agent) AsRead() Agent {
	read := a
	a.read = &read
	return a
}

// Encode returns the document to store, in the form of json.Marshal. Text from hosts
// that is not valid UTF-8 gets U+FFFD in its place, so that queries see what readers in
// Go see.
func (a *Agent) Encode() ([]byte, error) {
	doc, err := jsonv1.Marshal(a)
	if !utf8.Valid(doc) { // nearly every document is, and ToValidUTF8 copies it byte by byte
		doc = bytes.ToValidUTF8(doc, []byte("\uFFFD"))
	}
	return doc, err
}

// Differs compares the agent with the document that was read. facts reports
// whether anything differs on which its status, its labels or its presence in listings
// depends, except those of its upgrade; upgrade reports whether its times, status or phase differ. Both
// are true for an agent that was not read from a document, or whose Revision has
// changed since.
func (a *Agent) Differs() (facts, upgrade bool) {
	was := a.read
	if was == nil || was.Revision != a.Revision {
		return true, true
	}
	facts = a.ID != was.ID || a.PolicyID != was.PolicyID || a.PolicyRev != was.PolicyRev || a.EnrollmentID != was.EnrollmentID || a.Version != was.Version || a.Active != was.Active ||
		a.AuditUnenrolledReason != was.AuditUnenrolledReason || (a.OrdersEndedAt == nil) != (was.OrdersEndedAt == nil) || !a.EnrolledAt.Equal(was.EnrolledAt) ||
		(a.UnenrollmentStartedAt == nil) != (was.UnenrollmentStartedAt == nil) ||
		!sameTime(a.VersionSince, was.VersionSince) || !sameTime(a.HealthySince, was.HealthySince) ||
		!slices.Equal(a.Tags, was.Tags) || !bytes.Equal(a.LocalMetadata, was.LocalMetadata) || !bytes.Equal(a.UserMetadata, was.UserMetadata)
	return facts, !sameTime(a.UpgradeStartedAt, was.UpgradeStartedAt) || !sameTime(a.UpgradedAt, was.UpgradedAt) || !sameTime(a.ComponentsSince, was.ComponentsSince) ||
		a.UpgradeStatus != was.UpgradeStatus || a.upgradePhase() != was.upgradePhase()
}

func (a *Agent) upgradePhase() agentapi.UpgradeState {
	if a.UpgradeDetails == nil {
		return ""
	}
	return a.UpgradeDetails.State
}

// Forget drops the copy that Differs compares with. A caller that holds a whole fleet
// in memory calls it.
func (a *Agent) Forget() { a.read = nil }

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

// MaxDepth is how deep what a host or an operator sends may be nested. Agents send some ten
// levels; SQLite reads 1,000.
const MaxDepth = 64

// MaxStoredDepth is how deep a stored document may be nested: several times what is accepted of
// hosts, and a third of what SQLite reads.
const MaxStoredDepth = 300

// MaxStoredReport bounds what one report of a host, its components or its metadata, takes in its
// document: the longest that is accepted, and some escapes. A document with more costs every list of
// agents.
const MaxStoredReport = 640 << 10

// CheckStored refuses a report that takes more than MaxStoredReport in a document, where some
// characters take up to six bytes.
func CheckStored(field string, raw json.RawMessage) error {
	if 6*len(raw) <= MaxStoredReport {
		return nil
	}
	size, invalid := len(raw), false
	for rest := []byte(raw); len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == '<' || r == '>' || r == '&':
			size += len(`\u003c`) - 1
		case r == '\u2028' || r == '\u2029':
			size += len(`\u2028`) - n
		case r == utf8.RuneError && n == 1 && invalid:
			size-- // one character stands for all of them
		case r == utf8.RuneError && n == 1:
			size += len("\uFFFD") - 1
		}
		invalid = r == utf8.RuneError && n == 1
		rest = rest[n:]
	}
	if size > MaxStoredReport {
		return FieldError(field, "takes %d bytes in the store, at most %d are accepted", size, MaxStoredReport)
	}
	return nil
}

// Deeper reports whether objects and lists of a JSON value are nested more than limit deep.
func Deeper[T ~[]byte | string](doc T, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Readable returns the agent without reports of its host that no store could read again. One
// bad document must stop no order for others, whoever wrote it: such an agent can be changed, and is
// whole after its host has reported again.
func (a Agent) Readable() Agent {
	for _, raw := range []*json.RawMessage{&a.LocalMetadata, &a.UserMetadata, &a.Components} {
		if Deeper(*raw, MaxStoredDepth-1) {
			*raw = nil
		}
	}
	return a
}
