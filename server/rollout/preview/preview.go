// Package preview computes what a rollout would do to the fleet before it starts:
// targets, batches, skipped agents, times and warnings, and the difference from an
// earlier preview. It does no I/O: package rollout passes it the fleet, stores the
// result, and starts a rollout exactly as previewed.
package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Fleet is the input of Compute.
type Fleet struct {
	// Agents are all that could match, without the unenrolled.
	Agents []fleet.Agent
	// Catalog has the packages of agents, or of the plan's component.
	Catalog fleet.Catalog
	// Components are the plan's component in each policy that lists it, by policy.
	Components map[string]agentapi.PolicyComponent
	// Config identifies the configuration files that the server renders for an agent; empty
	// if it renders none. Config is nil if the server renders nothing.
	Config func(*fleet.Agent) (digest string, err error)
	// Locked has the rollout that holds an agent's policy, by policy.
	Locked map[string]LockOwner
	// Timeouts are the inactivity timeouts by policy.
	Timeouts map[string]time.Duration
	// Connections are those of the agents, for a rollout in lockstep.
	Connections fleet.Connections
	Freezes     []fleet.Freeze
	// Room is what the exposure budget leaves for the plan's version, nil without a
	// rule.
	Room *plan.Room
	// Durations has past durations of upgrades in this fleet, from offer to version reached;
	// empty: not known.
	Durations []time.Duration
}

// LockOwner is the rollout that locks a policy.
type LockOwner struct {
	ID, Name string
	// Cancelling means that it is being cancelled, and locks only the hosts in flight.
	Cancelling bool
}

// Compute returns what a rollout would do to the fleet. The same rollout and fleet give
// the same preview at any time, except for its times, for which agents are away, and
// for a query that depends on the clock.
//
// A plan that could exceed the exposure budget is refused with a Conflict; the preview
// that shows it is returned nevertheless.
func Compute(r *fleet.Rollout, f Fleet, now time.Time) (fleet.Preview, error) {
	p := plan.WithDefaults(r.Plan)
	s := newBuilder(r.ID, &p, f, now)
	var err error
	if s.chosen, err = plan.NewSelector(&p.Select, s.asked()); err != nil {
		return fleet.Preview{}, err
	}
	if err := s.checkNamed(); err != nil {
		return fleet.Preview{}, err
	}
	content, err := planContent(p)
	if err != nil {
		return fleet.Preview{}, err
	}
	picks := s.choose(sha256.Sum256(content))
	if len(picks) > fleet.MaxTargets {
		return fleet.Preview{}, fleet.FieldError("body.plan.select", "chooses %d agents, a rollout may have %d: make several", len(picks), fleet.MaxTargets)
	}
	if plan.Together(p.Strategy.Kind) && len(picks) > fleet.MaxLockstepTargets {
		return fleet.Preview{}, fleet.FieldError("body.plan.select", "chooses %d agents, a rollout in lockstep may have %d", len(picks), fleet.MaxLockstepTargets)
	}
	if err := plan.CheckWaitFor(&p, s.observes); err != nil {
		return fleet.Preview{}, err
	}
	members := membersOf(picks)
	var batches []plan.Cut
	if len(picks) > 0 {
		batches = plan.Of(&p).Batches(&p, members)
	}
	if len(batches) > fleet.MaxBatches {
		return fleet.Preview{}, fleet.FieldError("body.plan.strategy", "cuts %d targets into %d batches, a rollout may have %d: make batches of %d or more", len(picks), len(batches), fleet.MaxBatches, len(picks)/fleet.MaxBatches+1)
	}
	pre := s.describe(batches, picks)
	if p.Strategy.Canary != nil {
		pre.Coverage = plan.CoverageOf(members, batches, p.Strategy.Canary.Over, func(i int, label string) string { return picks[i].Label(label) })
	}
	pre.Staging = s.staging(picks)
	s.schedule(&pre)
	s.share(&pre)
	s.warn(&pre, picks)
	if err := s.refuse(&pre, picks); err != nil {
		return fleet.Preview{}, err
	}
	pre.Hash = previewHash(content, &pre)
	if f.Room != nil {
		exposure := f.Room.Exposure
		pre.Exposure = &exposure
		if err := checkExposure(&p, &pre, f.Room, sitesOf(batches, picks), plan.VerifyTime(&p, s.observes)); err != nil {
			return pre, err
		}
	}
	return pre, nil
}

// builder computes one preview.
type builder struct {
	id    string // of the rollout
	plan  *fleet.Plan
	fleet Fleet
	now   time.Time

	chosen  plan.Selector
	skipped []fleet.SkippedAgent
	// packages are those of the plan's version; catalogs have many more.
	packages fleet.Catalog
	// packagesOf are those of the plan's version and of another one, by that.
	packagesOf map[string]fleet.Catalog
	configs    map[string]string // what was rendered, by agent
	platforms  map[pinKey]pinned
	// upgradeable are likenesses that passed CheckUpgrade.
	upgradeable map[likeness]bool
	matching    int
	// observes is the longest time for which a target's host observes the version.
	observes time.Duration
	warnings []string
}

func newBuilder(id string, p *fleet.Plan, f Fleet, now time.Time) *builder {
	return &builder{id: id, plan: p, fleet: f, now: now, platforms: map[pinKey]pinned{}, upgradeable: map[likeness]bool{}, configs: map[string]string{}, packagesOf: map[string]fleet.Catalog{}}
}

func (s *builder) asked() plan.QueryTime {
	return plan.QueryTime{Now: s.now, Timeouts: s.fleet.Timeouts}
}

// pick is an agent that becomes a target, or whose component does.
type pick struct {
	plan.Candidate
	plan.Member
	target fleet.PreviewTarget
	key    uint64 // the sort key
	sites  siteNumbers
}

func membersOf(picks []*pick) []plan.Member {
	members := make([]plan.Member, len(picks))
	for i, pk := range picks {
		members[i] = pk.Member
	}
	return members
}

// checkNamed refuses a plan that names agents that do not exist: because of a typing
// error an agent would silently not be upgraded.
func (s *builder) checkNamed() error {
	sel := &s.plan.Select
	if len(sel.Agents)+len(sel.ExcludeAgents)+len(sel.Policies) == 0 {
		return nil
	}
	here := make(map[string]bool, len(s.fleet.Agents))
	policies := map[string]bool{}
	for i := range s.fleet.Agents {
		here[s.fleet.Agents[i].ID] = true
		policies[s.fleet.Agents[i].PolicyID] = true
	}
	missing := func(ids []string, known map[string]bool) []string {
		var out []string
		for _, id := range ids {
			if !known[id] {
				out = append(out, id)
			}
		}
		return out
	}
	if none := missing(sel.Agents, here); len(none) > 0 {
		return fleet.FieldError("body.plan.select.agents", "names %s not enrolled: %s", plan.Count(len(none), "agent that is", "agents that are"), fleet.List(none))
	}
	if none := missing(sel.ExcludeAgents, here); len(none) > 0 {
		s.warnf("exclude_agents names %s not enrolled: %s", plan.Count(len(none), "agent that is", "agents that are"), fleet.List(none))
	}
	if none := missing(sel.Policies, policies); len(none) > 0 {
		s.warnf("no agent has the policy %s", fleet.List(none))
	}
	return nil
}

// choose divides the matching agents into targets and skipped ones. Targets are sorted
// by a hash of plan and agent, so that agents with consecutive ids, which may share a
// rack, are spread over the batches.
func (s *builder) choose(seed [sha256.Size]byte) []*pick {
	p := s.plan
	for _, pkg := range s.fleet.Catalog {
		if pkg.Version == p.Version {
			s.packages = append(s.packages, pkg)
		}
	}
	picks := make([]*pick, 0, len(s.fleet.Agents))
	numbers := numberSites(s.fleet.Room)
	buf := make([]byte, 0, 128)
	for i := range s.fleet.Agents {
		a := plan.Candidate{Agent: &s.fleet.Agents[i]}
		if !s.chosen.Matches(&a) {
			continue
		}
		s.matching++
		subject := a.Of(p.Component)
		if code, text, refused := s.verdict(&a, &subject); code != "" {
			s.skip(&a, &subject, code, text)
			if refused != nil {
				out := &s.skipped[len(s.skipped)-1]
				out.Cause, out.Forceable = refused.Cause, refused.Forceable
			}
			continue
		}
		buf = append(append(buf[:0], seed[:]...), a.ID...)
		sum := sha256.Sum256(buf)
		pk := &pick{Member: plan.MemberOf(p, &a), target: s.target(&a, &subject), key: binary.BigEndian.Uint64(sum[:]), sites: numbers.of(&a)}
		pk.target.Ring = pk.Ring
		pk.Agent = a.Agent // without the decoded metadata: a million would fill the memory
		picks = append(picks, pk)
	}
	slices.SortFunc(picks, func(a, b *pick) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(s.skipped, func(a, b fleet.SkippedAgent) int { return cmp.Compare(a.AgentID, b.AgentID) })
	return picks
}

func (s *builder) skip(a *plan.Candidate, subject *fleet.Subject, code fleet.ReasonCode, text string) {
	s.skipped = append(s.skipped, fleet.SkippedAgent{AgentID: a.ID, Hostname: a.Hostname(), Version: subject.Version, Code: code, Text: text})
}

// verdict returns why a matching agent is skipped; an empty code means that it is a
// target. refused is the error of its upgrade, if that is why. Reasons that an operator would look for first come first: an agent that runs
// the version needs nothing, whichever rollout holds its policy.
func (s *builder) verdict(a *plan.Candidate, subject *fleet.Subject) (code fleet.ReasonCode, text string, refused *fleet.Error) {
	p := s.plan
	left, gone := a.Left()
	switch {
	case gone:
		return fleet.WhyGone, left.Text, nil
	case a.UnenrollmentStartedAt != nil:
		return fleet.WhyGone, "is being unenrolled", nil
	case a.Last.At == nil: // a lost answer to an enrolment leaves such an agent, which never comes
		return fleet.WhyNeverSeen, "has never checked in since it was enrolled at " + a.EnrolledAt.UTC().Format(time.RFC3339), nil
	}
	if text := s.lacksComponent(a, subject); text != "" {
		return fleet.WhyNoComponent, text, nil
	}
	digest, err := s.config(a)
	if err != nil {
		return fleet.WhyConfig, err.Error(), nil
	}
	changes := digest != "" && digest != subject.RenderedSHA256()
	switch {
	case subject.Version == p.Version && !changes && (!subject.Upgrading() || subject.UpgradeTo == p.Version):
		return fleet.WhySame, fmt.Sprintf("runs %s already", p.Version), nil
	case p.SourceVersion != "" && subject.Version != p.SourceVersion:
		return fleet.WhyOtherSource, fmt.Sprintf("runs %s, the plan is for agents that run %s", plan.VersionText(subject.Version), p.SourceVersion), nil
	}
	if out := plan.Of(p).Place(p, a).Out; out != "" {
		return fleet.WhyRing, out, nil
	}
	if text := s.lockedBy(a.PolicyID); text != "" {
		return fleet.WhyLocked, text, nil
	}
	if !plan.Together(p.Strategy.Kind) {
		if err := fleet.CheckInForce(s.fleet.Components[a.PolicyID], p.Version); err != nil {
			return fleet.WhyInForce, err.Error(), nil
		}
	}
	if err := s.checkUpgrade(a, subject); err != nil {
		errors.As(err, &refused)
		return plan.RefusalCode(err), err.Error(), refused
	}
	if pin := s.pinnedFor(a); pin.refusal != "" {
		return fleet.WhyRefused, pin.refusal, nil
	}
	return "", "", nil
}

// lacksComponent returns why an agent does not run the plan's component; empty if it does.
func (s *builder) lacksComponent(a *plan.Candidate, subject *fleet.Subject) string {
	name := s.plan.Component
	if name == "" {
		return ""
	}
	switch _, listed := s.fleet.Components[a.PolicyID]; {
	case !listed:
		return fmt.Sprintf("has the policy %s, which lists no component %s", a.PolicyID, name)
	case !subject.Reported:
		return fmt.Sprintf("does not report component %s, although its policy %s lists it", name, a.PolicyID)
	}
	return ""
}

// config returns what identifies the configuration that the server renders for the agent.
func (s *builder) config(a *plan.Candidate) (string, error) {
	if s.fleet.Config == nil {
		return "", nil
	}
	digest, err := s.fleet.Config(a.Agent)
	if err == nil && digest != "" {
		s.configs[a.ID] = digest
	}
	return digest, err
}

// likeness is all that CheckUpgrade reads of an idle agent, so equal likenesses have
// the same result. Comparing versions and decoding metadata for each agent would take
// most of a preview's time.
type likeness struct {
	version, os, arch string
	maker             fleet.Maker
	upgradeable       bool
	free              int64
}

func (s *builder) checkUpgrade(a *plan.Candidate, subject *fleet.Subject) error {
	wish := fleet.UpgradeRequest{Version: s.plan.Version, SourceURI: s.plan.SourceURI, Force: s.plan.Force, Retry: s.plan.RetryFailed}
	if s.plan.Component != "" {
		wish.Force = wish.Force || subject.Version == s.plan.Version // only the configuration changes
		return subject.CheckUpgrade(wish, s.between(subject.Version))
	}
	host := a.HostMetadata()
	like := likeness{a.Version, host.OS.Type, host.Host.Architecture, host.Maker, host.Elastic.Agent.Upgradeable, -1}
	if free := host.Muster.FreeBytes; free != nil {
		like.free = *free
	}
	quiet := !a.HasLeft() && a.UnenrollmentStartedAt == nil && !a.Upgrading() && a.UpgradeDetails == nil && len(a.FailedVersions) == 0 &&
		len(a.StagedVersions) == 0 && len(a.Kept.Rollbacks) == 0
	if quiet && s.upgradeable[like] {
		return nil
	}
	err := a.CheckUpgrade(wish, s.packages)
	if quiet && err == nil {
		s.upgradeable[like] = true
	}
	return err
}

// between returns the packages of the plan's version and of the one that runs: the state of a
// component goes from one to the other.
func (s *builder) between(version string) fleet.Catalog {
	if version == "" || version == s.plan.Version {
		return s.packages
	}
	c, ok := s.packagesOf[version]
	if !ok {
		c = slices.Concat(s.packages, s.fleet.Catalog.Of(version))
		s.packagesOf[version] = c
	}
	return c
}

// lockedBy returns which other rollout holds a policy; empty if none does.
func (s *builder) lockedBy(policy string, also ...string) string {
	h, ok := s.fleet.Locked[policy]
	if !ok || h.ID == s.id || slices.Contains(also, h.ID) {
		return ""
	}
	return fmt.Sprintf("the rollout %s (%s) has %s", cmp.Or(h.Name, "without a name"), h.ID, fleet.PartOf(s.plan.Component, "its policy"))
}

// pinned is what the plan installs on a platform.
type pinned struct {
	refusal string // why there is nothing to install
	bytes   int64
}

// pinnedFor compares the plan's artifacts with the published packages. Agents install
// what the server gives them, so a package that was replaced after the plan was made
// must be refused.
func (s *builder) pinnedFor(a *plan.Candidate) pinned {
	at := pinKey{plan.PlatformOf(a), a.HostMetadata().Maker, a.PolicyID}
	if known, ok := s.platforms[at]; ok {
		return known
	}
	pin := pin(s.plan, s.packages, at, s.fleet.Components[a.PolicyID])
	s.platforms[at] = pin
	return pin
}

// pinKey is what decides which artifact an agent gets.
type pinKey struct {
	plan.Platform
	maker  fleet.Maker
	policy string
}

func pin(p *fleet.Plan, packages fleet.Catalog, key pinKey, component agentapi.PolicyComponent) pinned {
	at := key.Platform
	published := slices.DeleteFunc(slices.Clone(packages), func(pkg fleet.Package) bool {
		return pkg.Maker != key.maker || !plan.Fits(pkg.OS, pkg.Arch, at)
	})
	if len(p.Artifacts) == 0 {
		if len(published) == 0 {
			return pinned{}
		}
		return pinned{bytes: published[0].Size}
	}
	i, ok := plan.ArtifactFor(p, at)
	if !ok {
		return pinned{refusal: fmt.Sprintf("the plan has no artifact for %s/%s", at.OS, at.Arch)}
	}
	art := p.Artifacts[i]
	if p.Component != "" && string(art.Runtime) != component.Runtime {
		return pinned{refusal: fmt.Sprintf("%s runs by %s, and the policy says %s: correct the runtime in the policy", p.What(p.Version), art.Runtime, component.Runtime)}
	}
	if art.Runtime == fleet.RuntimeDocker {
		if err := fleet.CheckPin(component, p.Version, art.URL); err != nil {
			return pinned{refusal: err.Error()}
		}
	}
	same := slices.IndexFunc(published, func(pkg fleet.Package) bool { return plan.HasChecksum(pkg, art.Checksum) })
	switch {
	case same >= 0:
		return pinned{bytes: published[same].Size}
	case p.SourceURI == "":
		return pinned{refusal: fmt.Sprintf("what is published of %s for %s/%s is not what the plan pins (%s)", p.Version, at.OS, at.Arch, plan.ShortChecksum(art.Checksum))}
	}
	return pinned{bytes: art.Size}
}

func (s *builder) target(a *plan.Candidate, subject *fleet.Subject) fleet.PreviewTarget {
	t := fleet.PreviewTarget{
		AgentID: a.ID, Hostname: a.Hostname(), Policy: a.PolicyID, From: subject.Version, To: s.plan.Version, Config: s.configs[a.ID],
		Site: a.Label(siteLabel), Online: s.online(a.Agent), Bytes: s.pinnedFor(a).bytes,
	}
	if c, ok := s.fleet.Components[a.PolicyID]; ok {
		t.Observes = fleet.Duration(c.Health.Wait())
		s.observes = max(s.observes, t.Observes.D())
	}
	for _, l := range s.plan.Limits.Per {
		t.Values = append(t.Values, a.Label(l.Label))
	}
	return t
}

// siteLabel is the label whose value is the network of an agent.
const siteLabel = "site"

// online reports whether the agent could take an offer now.
func (s *builder) online(a *fleet.Agent) bool {
	if plan.Together(s.plan.Strategy.Kind) && s.disconnected(a) {
		return false
	}
	switch a.Facts().StatusAt(s.now, s.fleet.Timeouts[a.PolicyID]) {
	case fleet.StatusOnline, fleet.StatusError, fleet.StatusDegraded, fleet.StatusUpdating:
		return true
	}
	return false
}

// disconnected reports whether the agent is away for a rollout in lockstep, which has not begun.
func (s *builder) disconnected(a *fleet.Agent) bool {
	return plan.Disconnected(a, s.fleet.Connections.Of(a), false, s.now)
}

// describe lists the batches and their targets.
func (s *builder) describe(cuts []plan.Cut, picks []*pick) fleet.Preview {
	pre := fleet.Preview{
		RolloutID: s.id, Component: s.plan.Component, At: s.now, ServerDefaults: plan.DefaultsOf(s.plan), Skipped: s.skipped,
		Targets: []fleet.PreviewTarget{}, Batches: []fleet.PreviewBatch{}, Sites: []fleet.SiteBytes{}, Warnings: []string{},
	}
	if pre.Skipped == nil {
		pre.Skipped = []fleet.SkippedAgent{}
	}
	sites := map[string]*fleet.SiteBytes{}
	for i, c := range cuts {
		b := fleet.PreviewBatch{Index: i, Kind: c.Kind, Ring: c.Ring, Size: len(c.Members)}
		for _, m := range c.Members {
			t := picks[m].target
			t.Batch = i
			if !t.Online {
				b.Offline++
			}
			pre.Targets = append(pre.Targets, t)
			if sites[t.Site] == nil {
				sites[t.Site] = &fleet.SiteBytes{Site: t.Site}
			}
			sites[t.Site].Agents++
			sites[t.Site].Bytes += t.Bytes
		}
		pre.Offline += b.Offline
		pre.Batches = append(pre.Batches, b)
	}
	for _, site := range sites {
		pre.Sites = append(pre.Sites, *site)
	}
	slices.SortFunc(pre.Sites, func(a, b fleet.SiteBytes) int { return cmp.Compare(a.Site, b.Site) })
	return pre
}

// share computes what part of the fleet runs the version after each batch.
func (s *builder) share(pre *fleet.Preview) {
	total, run := 0, 0
	for i := range s.fleet.Agents {
		a := &s.fleet.Agents[i]
		subject := a.Of(s.plan.Component)
		if a.HasLeft() || !subject.Reported {
			continue
		}
		total++
		if subject.Version == s.plan.Version && s.plan.Version != "" {
			run++
		}
	}
	for i := range pre.Batches {
		run += pre.Batches[i].Size
		if total > 0 {
			pre.Batches[i].Share = min(1, float64(run)/float64(total))
		}
	}
}

// planContent encodes the part of a plan that determines what it does: all but its name
// and description.
func planContent(p fleet.Plan) ([]byte, error) {
	p.Name, p.Description = "", ""
	content, err := json.Marshal(p)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "the plan cannot be written down: %w", err)
	}
	return content, nil
}

// previewHash covers the plan, the targets with their configuration, and the skipped agents.
// Times, estimates and which agents are away are not part of it, since they differ from minute
// to minute.
func previewHash(content []byte, pre *fleet.Preview) string {
	h := sha256.New()
	buf := append(slices.Clone(content), '\n')
	for i := range pre.Targets {
		t := &pre.Targets[i]
		for _, part := range []string{t.AgentID, t.From, t.To} {
			buf = strconv.AppendQuote(buf, part)
		}
		if t.Config != "" {
			buf = strconv.AppendQuote(buf, t.Config)
		}
		buf = append(strconv.AppendInt(buf, int64(t.Batch), 10), ' ')
		buf = append(strconv.AppendInt(buf, int64(t.Ring), 10), '\n')
		h.Write(buf)
		buf = buf[:0]
	}
	buf = append(buf, "left out\n"...)
	for i := range pre.Skipped {
		buf = strconv.AppendQuote(buf, pre.Skipped[i].AgentID)
		buf = append(append(buf, pre.Skipped[i].Code...), '\n')
		h.Write(buf)
		buf = buf[:0]
	}
	h.Write(buf)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
