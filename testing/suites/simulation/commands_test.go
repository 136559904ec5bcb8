package simulation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// run executes one command of a script and returns its output. An error in the script
// fails the test; a refusal of the server is output.
func (sim *simulation) run(c command) string {
	sim.t.Helper()
	do, ok := commands[c.words[0]]
	if !ok {
		sim.t.Fatalf("line %d: there is no command %q; there are %s", c.line, c.words[0], strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	args := arguments{sim: sim, line: c.line, input: c.input, named: map[string]string{}}
	for _, word := range c.words[1:] {
		if name, value, ok := strings.Cut(word, "="); ok {
			args.named[name] = value
		} else {
			args.plain = append(args.plain, word)
		}
	}
	answer, err := do(sim, args)
	if err != nil {
		answer += sim.refusal(err)
	}
	sim.lastChange = time.Now()
	if answer != "" && !strings.HasSuffix(answer, "\n") {
		answer += "\n"
	}
	return sim.replaceIDs(answer)
}

func (sim *simulation) refusal(err error) string {
	var drift *rollout.DriftError
	out := fmt.Sprintf("refused (%s): %v\n", fleet.KindOf(err), err)
	if errors.As(err, &drift) {
		sim.placeholders[drift.Now.Hash] = "HASH"
		for _, part := range []struct {
			sign  string
			items []fleet.DriftItem
		}{{"added", drift.Drift.Added}, {"removed", drift.Drift.Removed}, {"changed", drift.Drift.Changed}} {
			for _, i := range part.items {
				out += fmt.Sprintf("  %s %s: %s\n", part.sign, i.Hostname, i.Text)
			}
		}
	}
	return out
}

// arguments are the plain words, the name=value pairs and the input of a command.
type arguments struct {
	sim   *simulation
	line  int
	plain []string
	named map[string]string
	input string
}

func (a arguments) bad(format string, args ...any) {
	a.sim.t.Helper()
	a.sim.t.Fatalf("line %d: %s", a.line, fmt.Sprintf(format, args...))
}

func (a arguments) word(i int) string {
	if i >= len(a.plain) {
		a.bad("%d words are too few", len(a.plain))
	}
	return a.plain[i]
}

func (a arguments) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		a.bad("%v", err)
	}
	return n
}

func (a arguments) duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		a.bad("%v", err)
	}
	return d
}

// rollout returns the rollout named by rollout=…, or the latest one.
func (a arguments) rollout() *knownRollout {
	if len(a.sim.known) == 0 {
		a.bad("there is no rollout yet")
	}
	name := a.named["rollout"]
	for _, m := range slices.Backward(a.sim.known) {
		if name == "" || m.name == name {
			return m
		}
	}
	a.bad("there is no rollout %q", name)
	return nil
}

// by returns the request's actor, ann, and its reason from why=…, where _ is a space.
func (a arguments) by() rollout.Request {
	return rollout.Request{Actor: "ann", Why: strings.ReplaceAll(a.named["why"], "_", " ")}
}

// agents parses web-1, web-1..web-5 (in the order of enrolment), or 3% of all agents,
// evenly spread.
func (a arguments) agents(text string) []*Agent {
	all := a.sim.fleet.Agents()
	var out []*Agent
	for part := range strings.SplitSeq(text, ",") {
		if percent, ok := strings.CutSuffix(part, "%"); ok {
			share, err := strconv.ParseFloat(percent, 64)
			if err != nil {
				a.bad("%v", err)
			}
			for i, agent := range all {
				if int(float64(i+1)*share/100) > int(float64(i)*share/100) {
					out = append(out, agent)
				}
			}
			continue
		}
		from, to, isRange := strings.Cut(part, "..")
		if !isRange {
			to = from
		}
		first := slices.IndexFunc(all, func(x *Agent) bool { return x.ID == from })
		last := slices.IndexFunc(all, func(x *Agent) bool { return x.ID == to })
		if first < 0 || last < first {
			a.bad("there are no agents %s", part)
		}
		out = append(out, all[first:last+1]...)
	}
	return out
}

func ids(agents []*Agent) []string {
	var out []string
	for _, a := range agents {
		out = append(out, a.ID)
	}
	return out
}

var commands map[string]func(*simulation, arguments) (string, error)

func init() { // in init, since run refers to the table and is called by it
	commands = map[string]func(*simulation, arguments) (string, error){
		"fleet": (*simulation).enrol, "publish": (*simulation).publish, "behave": (*simulation).behave, "offline": (*simulation).offline, "online": (*simulation).online,
		"component": (*simulation).addComponent,
		"unenroll":  (*simulation).unenroll, "exposure": (*simulation).exposure, "freeze": (*simulation).freeze, "manifest": (*simulation).manifest,
		"create": (*simulation).create, "preview": (*simulation).preview, "start": (*simulation).start, "retry": (*simulation).retry, "skip": (*simulation).skip,
		"rollback": (*simulation).rollback, "delete": (*simulation).remove, "upgrade": (*simulation).upgrade,
		"advance": (*simulation).pass, "kill": (*simulation).kill, "show": (*simulation).show, "targets": (*simulation).targets, "why": (*simulation).why, "versions": (*simulation).versions,
		"incidents": (*simulation).listIncidents, "audit": (*simulation).audit, "events": (*simulation).events, "agent": (*simulation).agent,
	}
	for name, command := range map[string]func(*rollout.Service) func(a arguments, id string) (fleet.Rollout, error){
		"pause": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) {
				return s.Pause(a.sim.ctx(), id, slices.Contains(a.plain, "now"), a.by())
			}
		},
		"resume": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Resume(a.sim.ctx(), id, a.by()) }
		},
		"force": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Force(a.sim.ctx(), id, a.by()) }
		},
		"approve": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Approve(a.sim.ctx(), id, a.by()) }
		},
		"promote": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Promote(a.sim.ctx(), id, a.by()) }
		},
		"cancel": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Cancel(a.sim.ctx(), id, a.by()) }
		},
	} {
		commands[name] = func(sim *simulation, a arguments) (string, error) {
			r, err := command(sim.rollouts)(a, a.rollout().id)
			if err != nil {
				return "", err
			}
			return string(r.State), nil
		}
	}
}

// enrol adds agents: fleet 10 name=web os=linux arch=amd64 version=1.0.0
// policy=default. Other names are tags. The agents use the values of a comma-separated
// list in turn.
func (sim *simulation) enrol(a arguments) (string, error) {
	n := a.number(a.word(0))
	name := a.named["name"]
	if name == "" {
		name = "web"
	}
	valueFor := func(key, value string, i int) string {
		if v, ok := a.named[key]; ok {
			value = v
		}
		values := strings.Split(value, ",")
		return values[i%len(values)]
	}
	policyID := valueFor("policy", fleet.DefaultPolicyID, 0)
	if _, err := sim.store.Policies().Get(sim.ctx(), policyID); fleet.KindOf(err) == fleet.NotFound && err != nil {
		sim.must(sim.store.Policies().Create(sim.ctx(), fleet.Policy{ID: policyID, Name: policyID, Namespace: "default", PolicyRev: 1}))
	}
	have := 0
	for _, other := range sim.fleet.Agents() {
		if strings.HasPrefix(other.ID, name+"-") {
			have++
		}
	}
	hosts := make([]Host, n)
	for i := range hosts {
		h := Host{
			ID: fmt.Sprintf("%s-%0*d", name, len(strconv.Itoa(n)), have+i+1), Policy: policyID,
			Version: valueFor("version", "1.0.0", i), OS: valueFor("os", "linux", i), Arch: valueFor("arch", "amd64", i),
		}
		for _, key := range slices.Sorted(maps.Keys(a.named)) {
			switch key {
			case "name", "policy", "version", "os", "arch":
			default:
				h.Tags = append(h.Tags, key+"="+valueFor(key, "", i))
			}
		}
		hosts[i] = h
	}
	return "", sim.fleet.Enrol(sim.ctx(), hosts...)
}

func (sim *simulation) publish(a arguments) (string, error) {
	if name := a.named["component"]; name != "" {
		return "", sim.fleet.PublishComponent(sim.ctx(), name, a.word(0), 20<<20)
	}
	return "", sim.fleet.Publish(sim.ctx(), a.word(0), 20<<20)
}

// behave sets how agents behave on a version: behave web-3 on=2.0.0
// crash=30s, with stuck, silent=…, status=…, download=…, fail=text, watch=…, hang=….
func (sim *simulation) behave(a arguments) (string, error) {
	agents := a.agents(a.word(0))
	b := Behaviour{
		Download: a.duration(a.named["download"]), FailDownload: strings.ReplaceAll(a.named["fail"], "_", " "),
		Crash: a.duration(a.named["crash"]), Stuck: slices.Contains(a.plain, "stuck"), Silent: a.duration(a.named["silent"]),
		Status: a.named["status"], Watch: a.duration(a.named["watch"]), Hang: a.duration(a.named["hang"]),
	}
	for _, agent := range agents {
		agent.Behave[a.named["on"]] = b
	}
	if len(agents) > 1 {
		return fmt.Sprintf("%d agents", len(agents)), nil
	}
	return "", nil
}

func (sim *simulation) offline(a arguments) (string, error) { return sim.setOffline(a, true) }
func (sim *simulation) online(a arguments) (string, error)  { return sim.setOffline(a, false) }

func (sim *simulation) setOffline(a arguments, offline bool) (string, error) {
	for _, agent := range a.agents(a.word(0)) {
		if err := agent.SetOffline(sim.ctx(), offline); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (sim *simulation) unenroll(a arguments) (string, error) {
	for _, agent := range a.agents(a.word(0)) {
		if _, err := sim.fleet.Actions.Unenroll(sim.ctx(), action.UnenrollOrder{AgentIDs: []string{agent.ID}, Revoke: true, Force: true, Actor: "ann"}); err != nil {
			return "", err
		}
	}
	return "", nil
}

// decode decodes YAML into a type with JSON names, and refuses unknown fields.
func (a arguments) decode(v any) {
	a.sim.t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(a.input), &doc); err != nil {
		a.bad("%v", err)
	}
	b, err := json.Marshal(doc)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode(v)
	}
	if err != nil {
		a.bad("%v", err)
	}
}

func (sim *simulation) exposure(a arguments) (string, error) {
	rule := fleet.ExposureRule{Enabled: true}
	a.decode(&rule)
	_, err := sim.rollouts.SetExposure(sim.ctx(), rule, a.by())
	return "", err
}

// freeze takes from and to relative to now: freeze easter from=0s to=2h.
func (sim *simulation) freeze(a arguments) (string, error) {
	now := time.Now().UTC()
	_, err := sim.rollouts.CreateFreeze(sim.ctx(), fleet.Freeze{Name: a.word(0), From: now.Add(a.duration(a.named["from"])), To: now.Add(a.duration(a.named["to"]))}, a.by())
	return "", err
}

func (sim *simulation) manifest(a arguments) (string, error) {
	var m plan.UpgradeManifest
	a.decode(&m)
	sim.manifests[m.Profile+"/"+m.ID] = m
	return "", nil
}

func (sim *simulation) create(a arguments) (string, error) {
	p := fleet.Plan{Name: a.word(0)}
	a.decode(&p)
	r, err := sim.rollouts.Create(sim.ctx(), p, a.by())
	if err != nil {
		return "", err
	}
	sim.add(a.word(0), &r)
	return string(r.State), nil
}

func (sim *simulation) add(name string, r *fleet.Rollout) *knownRollout {
	m := &knownRollout{name: name, id: r.ID}
	sim.known = append(sim.known, m)
	sim.placeholders[r.ID] = name
	return m
}

func (sim *simulation) preview(a arguments) (string, error) {
	m := a.rollout()
	p, err := sim.rollouts.Preview(sim.ctx(), m.id)
	if err != nil {
		return "", err
	}
	m.hash = p.Hash
	sim.placeholders[p.Hash] = "HASH"
	var out strings.Builder
	fmt.Fprintf(&out, "%d targets (%d away), %d left out, takes at least %s, about %s\n", len(p.Targets), p.Offline, len(p.Skipped), p.AtLeast, p.Estimate)
	for _, b := range p.Batches {
		fmt.Fprintf(&out, "batch %d %s", b.Index+1, b.Kind)
		if b.Ring != 0 || strings.Contains(string(sim.get(m.id).Plan.Strategy.Kind), "ring") {
			fmt.Fprintf(&out, " ring %d", b.Ring)
		}
		fmt.Fprintf(&out, ": %d, %s to %s, then %.0f%% of the fleet\n", b.Size, sim.elapsed(b.StartAt), sim.elapsed(b.EndAt), b.Share*100)
	}
	for _, s := range p.Sites {
		fmt.Fprintf(&out, "site %s: %d agents, %d MiB\n", s.Site, s.Agents, s.Bytes>>20)
	}
	if c := p.Coverage; c != nil {
		fmt.Fprintf(&out, "canaries cover %d of %d cells of %s, %.0f%% of the targets\n", c.Covered, c.Cells, strings.Join(c.Over, "×"), c.Agents*100)
	}
	if e := p.Exposure; e != nil {
		fmt.Fprintf(&out, "exposure: %d of %d may run %s\n", e.Limit, e.Fleet, e.Version)
	}
	for _, s := range p.Skipped {
		fmt.Fprintf(&out, "left out %s: %s: %s\n", s.Hostname, s.Code, s.Text)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", warning)
	}
	if slices.Contains(a.plain, "targets") {
		for _, t := range p.Targets {
			fmt.Fprintf(&out, "%s batch %d: %s to %s\n", t.Hostname, t.Batch+1, t.From, t.To)
		}
	}
	return out.String(), nil
}

func (sim *simulation) start(a arguments) (string, error) {
	m := a.rollout()
	r, err := sim.rollouts.Start(sim.ctx(), m.id, m.hash, slices.Contains(a.plain, "accept-drift"), a.by())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %s", r.State, counts(r.Counts)), nil
}

func (sim *simulation) retry(a arguments) (string, error) {
	var agents []string
	if len(a.plain) > 0 {
		agents = ids(a.agents(a.plain[0]))
	}
	r, err := sim.rollouts.Retry(sim.ctx(), a.rollout().id, agents, a.by())
	if err != nil {
		return "", err
	}
	return string(r.State), nil
}

func (sim *simulation) skip(a arguments) (string, error) {
	r, err := sim.rollouts.Skip(sim.ctx(), a.rollout().id, ids(a.agents(a.word(0))), a.by())
	if err != nil {
		return "", err
	}
	return string(r.State), nil
}

func (sim *simulation) rollback(a arguments) (string, error) {
	m := a.rollout()
	r, err := sim.rollouts.Rollback(sim.ctx(), m.id, rollout.Scope(a.word(0)), a.by())
	if err != nil {
		return "", err
	}
	if _, known := sim.placeholders[r.ID]; !known {
		sim.add(m.name+"-back", &r)
	}
	return fmt.Sprintf("%s, %s", r.State, counts(r.Counts)), nil
}

func (sim *simulation) remove(a arguments) (string, error) {
	m := a.rollout()
	if err := sim.rollouts.Delete(sim.ctx(), m.id, a.by()); err != nil {
		return "", err
	}
	sim.known = slices.DeleteFunc(sim.known, func(other *knownRollout) bool { return other == m })
	return "", nil
}

// upgrade orders an upgrade of agents outside any rollout.
func (sim *simulation) upgrade(a arguments) (string, error) {
	act, err := sim.fleet.Actions.Upgrade(sim.ctx(), action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: a.word(1)}, AgentIDs: ids(a.agents(a.word(0))), Actor: "ann"})
	if err != nil {
		return "", err
	}
	results, err := sim.store.Results().Errors(sim.ctx(), act.ID, 10)
	out := fmt.Sprintf("ordered for %d\n", len(act.Agents))
	for _, r := range results {
		out += fmt.Sprintf("%s: %s\n", r.Hostname, r.Error)
	}
	return out, err
}

func (sim *simulation) pass(a arguments) (string, error) {
	return sim.advance(a.duration(a.word(0))), nil
}

func (sim *simulation) kill(arguments) (string, error) {
	sim.restart()
	return "", nil
}

func (sim *simulation) show(a arguments) (string, error) {
	r := sim.get(a.rollout().id)
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n", sim.describe(&r), counts(r.Counts))
	for _, b := range r.Batches {
		fmt.Fprintf(&out, "batch %d %s: %s", b.Index+1, b.Kind, counts(b.Counts))
		for _, at := range []struct {
			what string
			at   *time.Time
		}{{"started", b.StartedAt}, {"ended", b.EndedAt}, {"cleared", b.ClearedAt}} {
			if at.at != nil {
				fmt.Fprintf(&out, ", %s %s", at.what, sim.elapsed(*at.at))
			}
		}
		out.WriteByte('\n')
	}
	if e := r.Exposure; e != nil {
		fmt.Fprintf(&out, "exposure: %d of %d, limit %d\n", e.Exposed, e.Fleet, e.Limit)
	}
	return out.String(), nil
}

// targets lists the targets of a rollout, or those in some states.
func (sim *simulation) targets(a arguments) (string, error) {
	q := store.TargetQuery{RolloutID: a.rollout().id, Limit: 1000}
	for _, s := range a.plain {
		q.States = append(q.States, fleet.TargetState(s))
	}
	list, _, err := sim.rollouts.ListTargets(sim.ctx(), q)
	var out strings.Builder
	for _, t := range list {
		fmt.Fprintf(&out, "%s batch %d: %s", t.Hostname, t.Batch+1, t.State)
		if t.Code != "" {
			fmt.Fprintf(&out, " (%s)", t.Code)
		}
		if t.Attempts > 1 {
			fmt.Fprintf(&out, " attempt %d", t.Attempts)
		}
		if t.Error != "" {
			fmt.Fprintf(&out, ": %s", t.Error)
		}
		out.WriteByte('\n')
	}
	return out.String(), err
}

func (sim *simulation) why(a arguments) (string, error) {
	id, at := "", time.Time{}
	if a.named["rollout"] != "" {
		id = a.rollout().id
	}
	if text := a.named["at"]; text != "" {
		at = sim.startedAt.Add(a.duration(text))
	}
	e, err := sim.rollouts.Why(sim.ctx(), a.word(0), a.named["component"], id, at)
	if err != nil {
		return "", err
	}
	out := e.Summary + "\n"
	for _, r := range e.Chain {
		out += fmt.Sprintf("  [%s] %s\n", r.Code, r.Text)
	}
	if e.Next != "" {
		out += "next: " + e.Next + "\n"
	}
	return out, nil
}

// versions counts the hosts by the version that they really run.
func (sim *simulation) versions(arguments) (string, error) {
	v := sim.fleet.Versions()
	out := ""
	for _, version := range slices.Sorted(maps.Keys(v)) {
		out += fmt.Sprintf("%s: %d\n", version, v[version])
	}
	return out, nil
}

func (sim *simulation) listIncidents(arguments) (string, error) {
	list, _, err := sim.incidents.List(sim.ctx(), "", 0, 100)
	out := ""
	for _, i := range list {
		out += fmt.Sprintf("%s %s %s: %s: %s", i.Severity, i.Category, i.State, i.Title, i.Text)
		if i.RecoveryPlan != "" {
			out += " (recovery: " + i.RecoveryPlan + ")"
		}
		out += "\n"
	}
	return out, err
}

// audit returns the audit trail of a rollout, oldest first.
func (sim *simulation) audit(a arguments) (string, error) {
	list, _, err := sim.rollouts.Trail(sim.ctx(), a.rollout().id, 0, 100)
	out := ""
	for _, e := range slices.Backward(list) {
		out += fmt.Sprintf("%s %s %s: %s", sim.elapsed(e.At), e.Actor, e.Verb, e.Text)
		if e.Why != "" {
			out += " (" + e.Why + ")"
		}
		out += "\n"
	}
	return out, err
}

// events counts the events of rollouts, upgrades and incidents by type.
func (sim *simulation) events(arguments) (string, error) {
	counts := map[string]int{}
	for after := int64(0); ; {
		events, err := sim.store.Events().After(sim.ctx(), after, 1000)
		if err != nil {
			return "", err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			counts[e.Type]++
			after = e.Seq
		}
	}
	out := ""
	for _, typ := range slices.Sorted(maps.Keys(counts)) {
		if strings.HasPrefix(typ, "rollout.") || strings.HasPrefix(typ, "agent.upgrade_") || strings.HasPrefix(typ, "incident.") {
			if typ == fleet.EventRolloutProgress || typ == fleet.EventTargetPhase {
				out += typ + "\n" // their number depends on the timing of rounds
				continue
			}
			out += fmt.Sprintf("%s %d\n", typ, counts[typ])
		}
	}
	return out, nil
}

// agent returns the agent's document in the store.
func (sim *simulation) agent(a arguments) (string, error) {
	doc, err := sim.store.Agents().Get(sim.ctx(), a.word(0))
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("runs %s, last healthy %q, status %s, upgrade %q", doc.Version, doc.LastHealthyVersion, doc.Facts().StatusAt(time.Now(), 0), doc.UpgradeStatus)
	if doc.UpgradeDetails != nil {
		out += " " + string(doc.UpgradeDetails.State)
	}
	return out, nil
}
