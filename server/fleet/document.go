package fleet

import (
	"bytes"
	"slices"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"
)

// DecodeAgent reads a stored document, as json.Unmarshal does. The Agent holds a copy
// of what was read, for Differs. The copy is shallow: callers that change an Agent
// replace its slices and times, and never write into them.
func DecodeAgent(doc string, revision int64) (Agent, error) {
	var a Agent
	err := jsonv1.Unmarshal([]byte(doc), &a)
	a.Revision = revision
	if err != nil {
		return a, err
	}
	read := a
	a.read = &read
	return a, nil
}

// Encode returns the document to store, in the form of json.Marshal. Text from hosts
// that is not valid UTF-8 gets U+FFFD in its place, so that queries see what readers in
// Go see.
func (a *Agent) Encode() ([]byte, error) {
	doc, err := jsonv1.Marshal(a)
	return bytes.ToValidUTF8(doc, []byte("\uFFFD")), err
}

// Differs compares the agent with the document that DecodeAgent read. facts reports
// whether anything differs on which its status, its labels or its presence in listings
// depends, except the times of its upgrade; upgrade reports whether those differ. Both
// are true for an agent that was not read from a document, or whose Revision has
// changed since.
func (a *Agent) Differs() (facts, upgrade bool) {
	was := a.read
	if was == nil || was.Revision != a.Revision {
		return true, true
	}
	facts = a.ID != was.ID || a.PolicyID != was.PolicyID || a.PolicyRev != was.PolicyRev || a.EnrollmentID != was.EnrollmentID || a.Version != was.Version || a.Active != was.Active ||
		a.AuditUnenrolledReason != was.AuditUnenrolledReason || !a.EnrolledAt.Equal(was.EnrolledAt) ||
		(a.UnenrollmentStartedAt == nil) != (was.UnenrollmentStartedAt == nil) ||
		!sameTime(a.VersionSince, was.VersionSince) || !sameTime(a.HealthySince, was.HealthySince) ||
		!slices.Equal(a.Tags, was.Tags) || !bytes.Equal(a.LocalMetadata, was.LocalMetadata) || !bytes.Equal(a.UserMetadata, was.UserMetadata)
	return facts, !sameTime(a.UpgradeStartedAt, was.UpgradeStartedAt) || !sameTime(a.UpgradedAt, was.UpgradedAt) || !sameTime(a.ComponentsSince, was.ComponentsSince)
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
