package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func (s *site) why(id, component string) explain.Explanation {
	s.t.Helper()
	e, err := s.service.Why(s.t.Context(), id, component, "", time.Time{})
	s.must(err)
	return e
}

func (s *site) wantWhy(id, component, first, next string) {
	s.t.Helper()
	e := s.why(id, component)
	if !strings.Contains(e.Summary, first) || !strings.Contains(e.Next, next) || next == "" && e.Next != "" || len(e.Chain) == 0 {
		s.t.Errorf("it says %q, next %q\n%+v\nwant %q, next %q", e.Summary, e.Next, e.Chain, first, next)
	}
}

// orders orders web of agent a without a rollout, and returns the action.
func (s *site) orders(version string, force bool) fleet.Action {
	s.t.Helper()
	o := componentOrder("web", version, "a")
	o.Force = force
	act, err := s.service.Actions.Upgrade(s.t.Context(), o)
	s.must(err)
	s.later(time.Minute)
	return act
}

func TestWhyBeginsWithTheLastUpgradeOfAComponent(t *testing.T) {
	s := newSite(t, "a")
	s.must(s.store.Packages().Create(t.Context(), fleet.Package{File: "web-3", Version: "3.0.0", OS: "linux", Arch: "amd64", Size: 700, SHA512: strings.Repeat("ab", 64), Component: "web", Runtime: "process"}))
	r := s.start(of("web"))
	s.round()
	s.reports("a", component("web", "2.0.0", nil))
	for range 5 {
		s.later(30 * time.Minute)
		s.heartbeat("a")
		s.round()
	}
	if got := s.rollout(r.ID); got.State != fleet.RolloutCompleted {
		t.Fatalf("the rollout is %s: %+v", got.State, s.targets(r.ID))
	}
	s.wantWhy("a", "web", "was upgraded from 1.0.0 to 2.0.0 by rollout “web spring”", "")

	act := s.orders("3.0.0", false)
	s.wantWhy("a", "web", "web on host-a is being upgraded from 2.0.0 to 3.0.0 by an order of kim (action "+act.ID+")", "ends by itself")
	s.reports("a", component("web", "3.0.0", nil))
	s.wantWhy("a", "web", "web on host-a was upgraded from 2.0.0 to 3.0.0 by an order of kim (action "+act.ID+")", "If it is to run 2.0.0: `muster components upgrade web host-a --version 2.0.0 --force`.")
	if e := s.why("a", "web"); e.RolloutID != r.ID || !strings.Contains(e.Chain[1].Text, "was upgraded from 1.0.0 to 2.0.0 by rollout") {
		t.Errorf("of the rollout before it says %+v", e)
	}

	s.orders("1.0.0", true)
	s.reports("a", component("web", "1.0.0", nil))
	s.wantWhy("a", "web", "web on host-a was brought back from 3.0.0 to 1.0.0 by an order of kim", "If it is to run 2.0.0: `muster components upgrade web host-a --version 2.0.0`.")

	act = s.orders("3.0.0", false)
	failed := &agentapi.UpgradeDetails{TargetVersion: "3.0.0", ActionID: act.ID, State: agentapi.UpgradeFailed}
	failedWhile(agentapi.UpgradeWatching, "check page: 500", "")(failed)
	s.reports("a", component("web", "1.0.0", failed))
	s.wantWhy("a", "web", "web on host-a runs 1.0.0: its upgrade to 3.0.0, ordered by kim (action "+act.ID+"), was undone by its host: check page: 500", "Find out why it failed, then roll out a later version.")

	s.reports("a", component("web", "2.0.0", nil))
	s.wantWhy("a", "web", "web on host-a runs 2.0.0, which no order of the server brought there: it was changed on its host; the last order, ordered by kim", "")
	failed.ActionID = "of-the-host"
	s.reports("a", component("web", "2.0.0", failed))
	s.wantWhy("a", "web", "web on host-a runs 2.0.0: its upgrade to 3.0.0, which was asked for on its host, failed: check page: 500", "")

	again := s.start(of("web"), func(p *fleet.Plan) { p.Version, p.Force = "3.0.0", true })
	s.round()
	if e := s.why("a", "web"); e.RolloutID != again.ID || !strings.Contains(e.Summary, "it was offered 3.0.0") {
		t.Errorf("in a rollout it says %q", e.Summary)
	}
}

func TestWhyNamesTheFailureOfAComponentThatNoRolloutHas(t *testing.T) {
	s := newSite(t, "a")
	s.reports("a", component("web", "", nil), component("db", "1.0.0", nil))
	policy, err := s.store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
	s.must(err)
	policy.Components[0].Version = "1.0.0"
	storetest.Update(s.t, s.store.Policies(), policy)
	s.wantWhy("a", "web", "and 1.0.0 is published, but no rollout brings it there", "`muster components upgrade web host-a --version 1.0.0`")

	act := s.orders("1.0.0", false)
	failed := &agentapi.UpgradeDetails{TargetVersion: "1.0.0", ActionID: act.ID, State: agentapi.UpgradeFailed}
	failedWhile(agentapi.UpgradeDownloading, "folder /etc/web does not exist", "")(failed)
	s.reports("a", component("web", "", failed), component("db", "1.0.0", nil))
	s.wantWhy("a", "web", "web on host-a has no version yet: its upgrade to 1.0.0, ordered by kim (action "+act.ID+"), failed: folder /etc/web does not exist",
		"Fix the reported cause first: until then it fails again. Then retry it, or upgrade to a later version.")

	s.wantWhy("a", "db", "and 2.0.0 is published, but no rollout brings it there", "`muster components upgrade db host-a --version 2.0.0`")
	if e := s.why("a", "db"); !strings.Contains(e.Chain[0].Text, "db on host-a runs 1.0.0, and the server has ordered no upgrade of it") {
		t.Errorf("of one that was installed on the host it says %+v", e.Chain)
	}
}

// The agent itself is explained as its components are.
func TestWhyBeginsWithTheLastUpgradeOfAnAgent(t *testing.T) {
	s := newSite(t, "a")
	r := s.start()
	s.round()
	_, err := s.service.Cancel(t.Context(), r.ID, kim)
	s.must(err)
	for range 3 {
		s.round()
	}
	s.later(time.Minute)
	act, err := s.service.Actions.Upgrade(t.Context(), upgradeOf("1.2.0", "a"))
	s.must(err)
	s.change("a", func(a *fleet.Agent) { a.ObserveUpgrade("1.2.0", nil, s.time()) })
	s.wantWhy("a", "", "host-a was upgraded from 1.1.0 to 1.2.0 by an order of kim (action "+act.ID+")", "")
	s.later(time.Hour)
	s.change("a", func(a *fleet.Agent) { a.ObserveUpgrade("1.3.0", nil, s.time()) })
	s.wantWhy("a", "", "host-a runs 1.3.0, which no order of the server brought there", "If it is to run 1.2.0")
}

func TestWhySaysThatARolloutWasCancelledAndNotOneTarget(t *testing.T) {
	s := newSite(t, six...)
	r := s.start(of("web"), canaries(1))
	s.round()
	_, err := s.service.Cancel(t.Context(), r.ID, kim)
	s.must(err)
	s.round()
	s.round()
	waited := s.in(r, fleet.TargetCancelled)
	if len(waited) == 0 {
		t.Fatalf("targets are %+v", s.targets(r.ID))
	}
	s.wantWhy(waited[0], "web", "was cancelled: the rollout was cancelled before its turn", "Retry it")
}
