package horde

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

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// run does one command of a script and gives its answer. What a script gets wrong
// ends the test; what the server refuses is an answer.
func (w *world) run(c command) string {
	w.t.Helper()
	do, ok := verbs[c.words[0]]
	if !ok {
		w.t.Fatalf("line %d: there is no command %q; there are %s", c.line, c.words[0], strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	args := arguments{w: w, line: c.line, input: c.input, named: map[string]string{}}
	for _, word := range c.words[1:] {
		if name, value, ok := strings.Cut(word, "="); ok {
			args.named[name] = value
		} else {
			args.plain = append(args.plain, word)
		}
	}
	answer, err := do(w, args)
	if err != nil {
		answer += w.refusal(err)
	}
	w.busy = time.Now()
	if answer != "" && !strings.HasSuffix(answer, "\n") {
		answer += "\n"
	}
	return w.scrub(answer)
}

func (w *world) refusal(err error) string {
	var drift *rollout.DriftError
	out := fmt.Sprintf("refused (%s): %v\n", fleet.KindOf(err), err)
	if errors.As(err, &drift) {
		w.pages[drift.Now.Hash] = "HASH"
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

// arguments of a command: plain words, name=value, and the input below it.
type arguments struct {
	w     *world
	line  int
	plain []string
	named map[string]string
	input string
}

func (a arguments) bad(format string, args ...any) {
	a.w.t.Helper()
	a.w.t.Fatalf("line %d: %s", a.line, fmt.Sprintf(format, args...))
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

// rollout is the one named by rollout=…, or the latest.
func (a arguments) rollout() *made {
	if len(a.w.made) == 0 {
		a.bad("there is no rollout yet")
	}
	name := a.named["rollout"]
	for _, m := range slices.Backward(a.w.made) {
		if name == "" || m.name == name {
			return m
		}
	}
	a.bad("there is no rollout %q", name)
	return nil
}

// by is who commands: ann, for the reason why="…" gives with _ for spaces.
func (a arguments) by() rollout.Request {
	return rollout.Request{Actor: "ann", Why: strings.ReplaceAll(a.named["why"], "_", " ")}
}

// agents reads web-1, web-1..web-5 (as they were enrolled), or 3% of all, spread
// evenly.
func (a arguments) agents(text string) []*Agent {
	all := a.w.fleet.Agents()
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

var verbs map[string]func(*world, arguments) (string, error)

func init() { // a table that its own functions read
	verbs = map[string]func(*world, arguments) (string, error){
		"fleet": (*world).enrol, "publish": (*world).publish, "behave": (*world).behave, "offline": (*world).offline, "online": (*world).online,
		"unenroll": (*world).unenroll, "exposure": (*world).exposure, "freeze": (*world).freeze, "manifest": (*world).manifest,
		"create": (*world).create, "preview": (*world).preview, "start": (*world).start, "retry": (*world).retry, "skip": (*world).skip,
		"rollback": (*world).rollback, "delete": (*world).remove, "upgrade": (*world).upgrade,
		"advance": (*world).pass, "kill": (*world).kill, "show": (*world).show, "targets": (*world).targets, "why": (*world).why, "versions": (*world).versions,
		"incidents": (*world).listIncidents, "audit": (*world).audit, "events": (*world).events, "agent": (*world).agent,
	}
	for name, command := range map[string]func(*rollout.Service) func(a arguments, id string) (fleet.Rollout, error){
		"pause": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) {
				return s.Pause(a.w.ctx(), id, slices.Contains(a.plain, "now"), a.by())
			}
		},
		"resume": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Resume(a.w.ctx(), id, a.by()) }
		},
		"force": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Force(a.w.ctx(), id, a.by()) }
		},
		"approve": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Approve(a.w.ctx(), id, a.by()) }
		},
		"cancel": func(s *rollout.Service) func(arguments, string) (fleet.Rollout, error) {
			return func(a arguments, id string) (fleet.Rollout, error) { return s.Cancel(a.w.ctx(), id, a.by()) }
		},
	} {
		verbs[name] = func(w *world, a arguments) (string, error) {
			r, err := command(w.rollouts)(a, a.rollout().id)
			if err != nil {
				return "", err
			}
			return string(r.State), nil
		}
	}
}

// enrol adds agents: fleet 10 name=web os=linux arch=amd64 version=1.0.0
// policy=default, and tags of any other name. Values with commas take turns.
func (w *world) enrol(a arguments) (string, error) {
	n := a.number(a.word(0))
	name := a.named["name"]
	if name == "" {
		name = "web"
	}
	turn := func(key, value string, i int) string {
		if v, ok := a.named[key]; ok {
			value = v
		}
		values := strings.Split(value, ",")
		return values[i%len(values)]
	}
	policyID := turn("policy", fleet.DefaultPolicyID, 0)
	if _, err := w.store.Policies().Get(w.ctx(), policyID); fleet.KindOf(err) == fleet.NotFound && err != nil {
		w.must(w.store.Policies().Create(w.ctx(), fleet.Policy{ID: policyID, Name: policyID, Namespace: "default", PolicyRev: 1}))
	}
	have := 0
	for _, other := range w.fleet.Agents() {
		if strings.HasPrefix(other.ID, name+"-") {
			have++
		}
	}
	hosts := make([]Host, n)
	for i := range hosts {
		h := Host{
			ID: fmt.Sprintf("%s-%0*d", name, len(strconv.Itoa(n)), have+i+1), Policy: policyID,
			Version: turn("version", "1.0.0", i), OS: turn("os", "linux", i), Arch: turn("arch", "amd64", i),
		}
		for _, key := range slices.Sorted(maps.Keys(a.named)) {
			switch key {
			case "name", "policy", "version", "os", "arch":
			default:
				h.Tags = append(h.Tags, key+"="+turn(key, "", i))
			}
		}
		hosts[i] = h
	}
	return "", w.fleet.Enrol(w.ctx(), hosts...)
}

func (w *world) publish(a arguments) (string, error) {
	return "", w.fleet.Publish(w.ctx(), a.word(0), 20<<20)
}

// behave says what becomes of agents on a version: behave web-3 on=2.0.0
// crash=30s, with stuck, silent=…, status=…, download=…, fail=text, watch=…, hang=….
func (w *world) behave(a arguments) (string, error) {
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

func (w *world) offline(a arguments) (string, error) { return w.away(a, true) }
func (w *world) online(a arguments) (string, error)  { return w.away(a, false) }

func (w *world) away(a arguments, away bool) (string, error) {
	for _, agent := range a.agents(a.word(0)) {
		if err := agent.SetAway(w.ctx(), away); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (w *world) unenroll(a arguments) (string, error) {
	for _, agent := range a.agents(a.word(0)) {
		if _, err := w.fleet.Actions.Unenroll(w.ctx(), action.UnenrollOrder{AgentIDs: []string{agent.ID}, Revoke: true, Force: true, Actor: "ann"}); err != nil {
			return "", err
		}
	}
	return "", nil
}

// decode reads YAML into a type that has JSON names, refusing what it does not
// know.
func (a arguments) decode(v any) {
	a.w.t.Helper()
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

func (w *world) exposure(a arguments) (string, error) {
	rule := fleet.ExposureRule{Enabled: true}
	a.decode(&rule)
	_, err := w.rollouts.SetExposure(w.ctx(), rule, a.by())
	return "", err
}

// freeze takes from and to as times from now: freeze easter from=0s to=2h.
func (w *world) freeze(a arguments) (string, error) {
	now := time.Now().UTC()
	_, err := w.rollouts.CreateFreeze(w.ctx(), fleet.Freeze{Name: a.word(0), From: now.Add(a.duration(a.named["from"])), To: now.Add(a.duration(a.named["to"]))}, a.by())
	return "", err
}

func (w *world) manifest(a arguments) (string, error) {
	var m plan.UpgradeManifest
	a.decode(&m)
	w.manifests[m.Profile+"/"+m.ID] = m
	return "", nil
}

func (w *world) create(a arguments) (string, error) {
	p := fleet.Plan{Name: a.word(0)}
	a.decode(&p)
	r, err := w.rollouts.Create(w.ctx(), p, a.by())
	if err != nil {
		return "", err
	}
	w.know(a.word(0), &r)
	return string(r.State), nil
}

func (w *world) know(name string, r *fleet.Rollout) *made {
	m := &made{name: name, id: r.ID}
	w.made = append(w.made, m)
	w.pages[r.ID] = name
	return m
}

func (w *world) preview(a arguments) (string, error) {
	m := a.rollout()
	p, err := w.rollouts.Preview(w.ctx(), m.id)
	if err != nil {
		return "", err
	}
	m.hash = p.Hash
	w.pages[p.Hash] = "HASH"
	var out strings.Builder
	fmt.Fprintf(&out, "%d targets (%d away), %d left out, takes at least %s, about %s\n", len(p.Targets), p.Offline, len(p.Skipped), p.AtLeast, p.Estimate)
	for _, b := range p.Batches {
		fmt.Fprintf(&out, "batch %d %s", b.Index+1, b.Kind)
		if b.Ring != 0 || strings.Contains(string(w.get(m.id).Plan.Strategy.Kind), "ring") {
			fmt.Fprintf(&out, " ring %d", b.Ring)
		}
		fmt.Fprintf(&out, ": %d, %s to %s, then %.0f%% of the fleet\n", b.Size, w.ago(b.StartAt), w.ago(b.EndAt), b.Share*100)
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

func (w *world) start(a arguments) (string, error) {
	m := a.rollout()
	r, err := w.rollouts.Start(w.ctx(), m.id, m.hash, slices.Contains(a.plain, "accept-drift"), a.by())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %s", r.State, counts(r.Counts)), nil
}

func (w *world) retry(a arguments) (string, error) {
	var agents []string
	if len(a.plain) > 0 {
		agents = ids(a.agents(a.plain[0]))
	}
	r, err := w.rollouts.Retry(w.ctx(), a.rollout().id, agents, a.by())
	if err != nil {
		return "", err
	}
	return string(r.State), nil
}

func (w *world) skip(a arguments) (string, error) {
	r, err := w.rollouts.Skip(w.ctx(), a.rollout().id, ids(a.agents(a.word(0))), a.by())
	if err != nil {
		return "", err
	}
	return string(r.State), nil
}

func (w *world) rollback(a arguments) (string, error) {
	m := a.rollout()
	r, err := w.rollouts.Rollback(w.ctx(), m.id, rollout.Scope(a.word(0)), a.by())
	if err != nil {
		return "", err
	}
	if _, known := w.pages[r.ID]; !known {
		w.know(m.name+"-back", &r)
	}
	return fmt.Sprintf("%s, %s", r.State, counts(r.Counts)), nil
}

func (w *world) remove(a arguments) (string, error) {
	m := a.rollout()
	if err := w.rollouts.Delete(w.ctx(), m.id, a.by()); err != nil {
		return "", err
	}
	w.made = slices.DeleteFunc(w.made, func(other *made) bool { return other == m })
	return "", nil
}

// upgrade orders an upgrade of single agents, apart from all rollouts.
func (w *world) upgrade(a arguments) (string, error) {
	act, err := w.fleet.Actions.Upgrade(w.ctx(), action.UpgradeOrder{UpgradeWish: fleet.UpgradeWish{Version: a.word(1)}, AgentIDs: ids(a.agents(a.word(0))), Actor: "ann"})
	if err != nil {
		return "", err
	}
	results, err := w.store.Results().Errors(w.ctx(), act.ID, 10)
	out := fmt.Sprintf("ordered for %d\n", len(act.Agents))
	for _, r := range results {
		out += fmt.Sprintf("%s: %s\n", r.Hostname, r.Error)
	}
	return out, err
}

func (w *world) pass(a arguments) (string, error) { return w.advance(a.duration(a.word(0))), nil }

func (w *world) kill(arguments) (string, error) {
	w.restart()
	return "", nil
}

func (w *world) show(a arguments) (string, error) {
	r := w.get(a.rollout().id)
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n", w.stand(&r), counts(r.Counts))
	for _, b := range r.Batches {
		fmt.Fprintf(&out, "batch %d %s: %s", b.Index+1, b.Kind, counts(b.Counts))
		for _, at := range []struct {
			what string
			at   *time.Time
		}{{"started", b.StartedAt}, {"ended", b.EndedAt}, {"cleared", b.ClearedAt}} {
			if at.at != nil {
				fmt.Fprintf(&out, ", %s %s", at.what, w.ago(*at.at))
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
func (w *world) targets(a arguments) (string, error) {
	q := store.TargetQuery{RolloutID: a.rollout().id, Limit: 1000}
	for _, s := range a.plain {
		q.States = append(q.States, fleet.TargetState(s))
	}
	list, _, err := w.rollouts.ListTargets(w.ctx(), q)
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

func (w *world) why(a arguments) (string, error) {
	id, at := "", time.Time{}
	if a.named["rollout"] != "" {
		id = a.rollout().id
	}
	if text := a.named["at"]; text != "" {
		at = w.began.Add(a.duration(text))
	}
	e, err := w.rollouts.Why(w.ctx(), a.word(0), id, at)
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

// versions counts the hosts by what really runs on them.
func (w *world) versions(arguments) (string, error) {
	v := w.fleet.Versions()
	out := ""
	for _, version := range slices.Sorted(maps.Keys(v)) {
		out += fmt.Sprintf("%s: %d\n", version, v[version])
	}
	return out, nil
}

func (w *world) listIncidents(arguments) (string, error) {
	list, _, err := w.incidents.List(w.ctx(), "", 0, 100)
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

// audit is the trail of a rollout, oldest first.
func (w *world) audit(a arguments) (string, error) {
	list, _, err := w.rollouts.Trail(w.ctx(), a.rollout().id, 0, 100)
	out := ""
	for _, e := range slices.Backward(list) {
		out += fmt.Sprintf("%s %s %s: %s", w.ago(e.At), e.Actor, e.Verb, e.Text)
		if e.Why != "" {
			out += " (" + e.Why + ")"
		}
		out += "\n"
	}
	return out, err
}

// events counts what the stream has told, by type; those of agents and actions
// apart from rollouts are left out.
func (w *world) events(arguments) (string, error) {
	counts := map[string]int{}
	for after := int64(0); ; {
		events, err := w.store.Events().After(w.ctx(), after, 1000)
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
				out += typ + "\n" // how many depends on how rounds fall
				continue
			}
			out += fmt.Sprintf("%s %d\n", typ, counts[typ])
		}
	}
	return out, nil
}

// agent is what the server's document says.
func (w *world) agent(a arguments) (string, error) {
	doc, err := w.store.Agents().Get(w.ctx(), a.word(0))
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("runs %s, last healthy %q, status %s, upgrade %q", doc.Version, doc.LastHealthyVersion, doc.Facts().StatusAt(time.Now(), 0), doc.UpgradeStatus)
	if doc.UpgradeDetails != nil {
		out += " " + string(doc.UpgradeDetails.State)
	}
	return out, nil
}
