package fleet

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// varying matches what differs between the errors of hosts with one cause: ids, hashes, times,
// addresses, sizes and counts. Versions stay, since they often are the cause.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?` + // a time
	`|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b` + // a UUID
	`|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b` + // an address
	`|\b[a-z2-7]{26}\b` + // an id of this server
	`|\b[0-9a-f]{12,}\b` + // a hash
	`|\b\d+(\.\d+)? ?([kMGT]i?)?B\b|\b\d+ bytes\b` + // a size
	`|\b\d+(\.\d+)?(ms|s|m|h)\b` + // a duration
	`|\bpid \d+\b`)

// spaceReported is what follows in the text of a refusal that differs from host to host.
const spaceReported = "; it last reported "

// General returns the text of the refusals of one cause on several hosts. It does not name the host,
// and is the same on all hosts where it can be.
func (c Cause) General(text string, names ...string) string {
	if c == CauseNoSpace { // the need is that of the package, and stays
		text, _, _ = strings.Cut(text, spaceReported)
		for _, name := range names {
			text = strings.ReplaceAll(text, name, "the host")
		}
		return Sentence(text)
	}
	return cmp.Or(causeTexts[c], Sentence(GeneralError(text, names...)))
}

// maxGeneral bounds a general error in bytes: some quote the end of a log.
const maxGeneral = 200

// GeneralError returns an error without what differs from host to host, so that equal causes on
// many hosts have equal texts. names are the host's own, such as its hostname and id.
func GeneralError(text string, names ...string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	for _, name := range names {
		if name != "" {
			text = strings.ReplaceAll(text, name, "the host")
		}
	}
	return Shorten(varying.ReplaceAllString(text, "…"), maxGeneral)
}

// Cause is why an agent cannot follow an order, or what to know of one that can.
type Cause string

// Values of Cause. Append only: they are part of the API.
const (
	CauseNotFound       Cause = "not_found"
	CauseUnenrolled     Cause = "unenrolled"
	CauseUninstalled    Cause = "uninstalled" // it is gone from its host
	CauseNotUpgradeable Cause = "not_upgradeable"
	CausePlatform       Cause = "platform"      // there is no package for its system
	CauseNotPublished   Cause = "not_published" // there is no package at all
	CauseWithheld       Cause = "withheld"      // its publishers have not signed the package
	CauseFloor          Cause = "floor"         // its publishers allow no version as low
	CauseFailedBefore   Cause = "failed_before"
	CauseUpgrading      Cause = "upgrading"
	CauseRunning        Cause = "running"         // it runs the version
	CauseNewer          Cause = "newer"           // it runs a higher version
	CauseUnknownVersion Cause = "unknown_version" // its version cannot be compared
	CauseRollout        Cause = "rollout"         // it belongs to an active rollout
	CauseManaged        Cause = "managed"         // its policy is managed
	CauseInForce        Cause = "in_force"        // another version is in force for its policy
	CauseNoComponent    Cause = "no_component"
	CauseState          Cause = "state" // the state of the component cannot follow
	CauseBroken         Cause = "broken"
	CauseConfig         Cause = "config"
	CausePinned         Cause = "pinned" // its policy pins another image
	CauseCannotStage    Cause = "cannot_stage"
	CauseStaged         Cause = "staged"
	CauseNoWayBack      Cause = "no_way_back"
	CauseBackExpired    Cause = "back_expired"
	CauseForward        Cause = "forward"         // the version that a rollback would go to is a later one
	CauseNoSpace        Cause = "no_space"        // too little is free on its disk
	CauseShared         Cause = "shared_identity" // several hosts have its identity
	CauseOther          Cause = "other"

	// Remarks on agents that follow the order.
	CauseOffline  Cause = "offline"
	CauseInactive Cause = "inactive"
	CauseOwned    Cause = "fleet" // it belongs to a declared fleet
)

// causeTexts are sentences that do not name the host. A cause without one is described by its
// error.
var causeTexts = map[Cause]string{
	CauseNotFound: "There is no such agent.", CauseUnenrolled: "The agent is unenrolled, or is being unenrolled.",
	CauseUninstalled:    "The agent is gone from its host, and follows orders again once the host is enrolled again.",
	CauseNotUpgradeable: "The agent cannot upgrade itself: it may run in a container, or was not installed.",
	CauseFailedBefore:   "The version failed on the host before, and the host refuses it.", CauseUpgrading: "An upgrade is under way, or the last one is still being watched.",
	CauseRunning: "The host runs the version already.", CauseNewer: "The host runs a higher version. It goes down only to a version that it keeps, or that the publishers allow.",
	CauseUnknownVersion: "The version that runs cannot be compared.", CauseRollout: "The host belongs to an active rollout.",
	CauseManaged: "The policy is managed, so its agents are changed only with the policy.", CauseInForce: "Another version is in force for the policy, whose hosts must not run mixed versions.",
	CauseNoComponent: "The agent does not run the component.", CauseBroken: "The last upgrade of the component failed and could not be undone.",
	CauseConfig: "The component has configuration files that the server has rendered, which the package would replace.", CauseCannotStage: "The agent cannot stage versions.",
	CauseStaged: "The host has staged the version already.", CauseNoWayBack: "The host keeps no earlier version.", CauseBackExpired: "The host no longer keeps the earlier version.",
	CauseForward:  "The other version that the host keeps is a later one, as after a rollback.",
	CauseShared:   "Several hosts have the identity of the agent, so that nobody knows which of them would follow. " + SharedRemedy,
	CauseInactive: "The agent has been silent for so long that it counts as inactive.",
}

// Values of CauseCount.Choice: the field of a request that includes the agents.
const (
	ChoiceForce           = "force"
	ChoiceIncludeInactive = "include_inactive"
	ChoiceTakeOver        = "take_over"
)

// CauseCount is how many agents of a preview share a cause.
type CauseCount struct {
	Code string `json:"code" example:"failed_before"`
	// As a sentence without the host's name
	Text  string `json:"text"`
	Count int    `json:"count"`
	// true: they would follow the order, and the text is a remark
	Will bool `json:"will"`
	// Field of the request that includes them anyway; absent: nothing does. An order for agents with
	// take_over is refused as a whole unless the field has the name of their fleet
	Choice string `json:"choice,omitempty" schema:"enum=force|include_inactive|take_over"`
	// Names of up to five of the hosts
	Sample []string `json:"sample,omitempty"`
}

const (
	// maxCauseSample bounds the hosts that a cause names.
	maxCauseSample = 5
	// maxCauseCounts bounds the causes of a preview. The last one has what is left.
	maxCauseCounts = 40
)

// CauseCounts counts the agents of a preview by cause.
type CauseCounts struct {
	counts []CauseCount
	index  map[causeKey]int
}

type causeKey struct {
	code, text, choice string
	will               bool
}

// Add counts n hosts, some of which are named.
func (c *CauseCounts) Add(one CauseCount, n int, hosts ...string) {
	if c.index == nil {
		c.index = map[causeKey]int{}
	}
	if len(c.counts) >= maxCauseCounts-1 {
		if _, known := c.index[one.key()]; !known {
			one = CauseCount{Code: string(CauseOther), Text: "Other causes.", Will: one.Will}
		}
	}
	i, known := c.index[one.key()]
	if !known {
		i = len(c.counts)
		c.index[one.key()], c.counts = i, append(c.counts, one)
	}
	to := &c.counts[i]
	to.Count += n
	to.Sample = append(to.Sample, hosts[:min(len(hosts), maxCauseSample-len(to.Sample))]...)
}

func (c *CauseCount) key() causeKey { return causeKey{c.Code, c.Text, c.Choice, c.Will} }

// AddRefusal counts an agent by the error that refuses it.
func (c *CauseCounts) AddRefusal(a *Agent, err error) {
	one := CauseCount{Code: string(CauseOther)}
	var e *Error
	if errors.As(err, &e) {
		one.Code = cmp.Or(string(e.Cause), one.Code)
		if e.Forceable {
			one.Choice = ChoiceForce
		}
	}
	one.Text = Cause(one.Code).General(err.Error(), "agent "+a.ID, a.ID)
	c.Add(one, 1, cmp.Or(a.Hostname(), a.ID))
}

// List returns the causes: first why agents would not follow the order, then remarks, the most
// frequent first, and equal ones in the order of their codes.
func (c *CauseCounts) List() []CauseCount {
	list := slices.Clone(c.counts)
	slices.SortStableFunc(list, func(a, b CauseCount) int {
		if a.Will != b.Will {
			if b.Will {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return list
}

// HostRefuses returns why the host will refuse an order that the server accepts; an empty cause
// means that nothing is known against it. Hosts go down only to a version that they keep, or that
// the publishers allow, and never below the publishers' floor, whether forced or not.
func (s *Subject) HostRefuses(w UpgradeRequest, c Catalog, now time.Time) (Cause, string) {
	host := s.Agent.Host()
	if w.SourceURI != "" || host.Maker != MakerMuster {
		return "", "" // not known, or it has no such rules
	}
	fitting := c.For(w.Version, host)
	for _, p := range fitting {
		if p.BelowFloor {
			return CauseFloor, "The version is below the lowest that its publishers allow, and the host refuses it."
		}
	}
	if s.Component == "" {
		if err := s.Agent.checkSpace(w.Version, host, fitting); err != nil {
			return CauseNoSpace, CauseNoSpace.General(err.Error(), "agent "+s.Agent.ID) + " It refuses if that is not free then."
		}
	}
	order, err := manifest.CompareVersions(w.Version, s.Version)
	if s.Version == "" || err != nil || order >= 0 || s.Keeps(w.Version, now) || slices.ContainsFunc(fitting, func(p Package) bool { return p.Downgrade }) {
		return "", ""
	}
	return CauseNewer, "The host runs a higher version, and refuses to go down: it does not keep this one, and its publishers do not allow it (`muster package allow-downgrade`)."
}

// Keeps reports whether the host has kept a version to which it can go back.
func (s *Subject) Keeps(version string, now time.Time) bool {
	if s.Component != "" {
		return slices.Contains(s.component.Rollbacks, version)
	}
	return slices.ContainsFunc(s.Agent.Kept.Rollbacks, func(r agentapi.Rollback) bool { return r.Version == version && now.Before(r.ValidUntil) })
}
