package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Strategy is how a rollout divides its targets and what it does in a round. All that depends on a
// plan's strategy asks it here, so another one is a file with its methods and an entry in strategies.
// One that goes batch by batch embeds [Rolling], and has the methods that differ.
type Strategy interface {
	// Traits are what is fixed about it.
	Traits() Traits
	// Complete sets what a plan omits. It changes nothing that the plan points to.
	Complete(p *fleet.Plan)
	// Check returns what is wrong with a plan that gives only fields that the strategy has.
	Check(p *fleet.Plan) error
	// CheckBreaking refuses a breaking migration that would reach many hosts before anybody has seen
	// one of them.
	CheckBreaking(p *fleet.Plan) error

	// Place returns the place of an agent among the targets.
	Place(p *fleet.Plan, a *Candidate) Place
	// Batches divides targets, which are in the order in which they are upgraded.
	Batches(p *fleet.Plan, members []Member) []Cut
	// Behind returns why a rollout must not start now, by the agents of the whole fleet.
	Behind(p *fleet.Plan, agents []fleet.Agent, timeouts map[string]time.Duration, now time.Time) ([]fleet.StartRefusal, error)

	// Refusal returns why a command on an active rollout is not possible because of the strategy, nil
	// if it is.
	Refusal(command string, r *fleet.Rollout) *fleet.Refusal

	// BatchText describes what distinguishes a batch, as the end of a sentence.
	BatchText(b *fleet.Batch) string
	// Warnings are what an operator should know before the start.
	Warnings(p *fleet.Plan, pre *fleet.Preview, members []Member) []string

	// wouldStop says at which failures a running or paused rollout stops.
	wouldStop(r *fleet.Rollout) string
	// decide does a round.
	decide(d *decision)
}

// Traits are what is fixed about a strategy.
type Traits struct {
	Kind fleet.StrategyKind // its name in plans
	// Fields are the fields of fleet.Strategy that it has, besides kind. A plan must not give others.
	Fields []string
	// Refused are other fields of plans that it does not have, by path, with the reason.
	Refused map[string]string
	// Together: the targets reach the version as one. None is offered, retried or rolled back alone, and
	// limits, waits between batches and tolerated failures do not exist.
	Together bool
}

// strategies are all that this version of Muster knows, in the order in which texts list them.
var strategies = register(Rolling{}, canary{}, allAtOnce{}, rings{}, lockstep{})

// registered is a strategy with its traits, which are asked for with every target.
type registered struct {
	Strategy
	traits Traits
}

func register(all ...Strategy) []registered {
	out := make([]registered, len(all))
	for i, s := range all {
		out[i] = registered{s, s.Traits()}
	}
	return out
}

// Kinds returns the names of all strategies.
func Kinds() []string {
	kinds := make([]string, len(strategies))
	for i := range strategies {
		kinds[i] = string(strategies[i].traits.Kind)
	}
	return kinds
}

// KindList lists the names of all strategies for a sentence.
func KindList() string {
	names := Kinds()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Known reports whether this version of Muster knows a strategy. A newer server may store one that it
// does not.
func Known(kind fleet.StrategyKind) bool { return slices.Contains(Kinds(), string(kind)) }

// Of returns the strategy of a plan. Of one that this version does not know, only [CheckKnown] decides:
// it is shown as if it went batch by batch.
func Of(p *fleet.Plan) Strategy { return strategyOf(p.Strategy.Kind).Strategy }

func strategyOf(kind fleet.StrategyKind) *registered {
	for i := range strategies {
		if strategies[i].traits.Kind == kind {
			return &strategies[i]
		}
	}
	return &strategies[0]
}

// Together reports whether the targets of a strategy reach the version as one; see Traits.
func Together(kind fleet.StrategyKind) bool { return strategyOf(kind).traits.Together }

// Has reports whether a strategy has a field of plans, given by its path such as strategy.away.
func Has(kind fleet.StrategyKind, path string) bool {
	_, why := lacks(kind, path)
	return why == ""
}

// Place is the place of an agent among the targets.
type Place struct {
	Ring int
	// Unreadable: the agent has a ring that is no number, and was given another one.
	Unreadable bool
	// Out is why the agent is no target; empty: it is one.
	Out string
}

// Member is a target that a strategy divides into batches.
type Member struct {
	Place
	// Cell names the values of the labels that canaries are spread over.
	Cell string
}

// MemberOf returns an agent as a member.
func MemberOf(p *fleet.Plan, a *Candidate) Member {
	m := Member{Place: Of(p).Place(p, a)}
	if p.Strategy.Canary != nil {
		m.Cell = cellOf(a, p.Strategy.Canary.Over)
	}
	return m
}

// Cut is a batch of members, by their indices.
type Cut struct {
	Kind    fleet.BatchKind
	Ring    int
	Members []int
}

func checkStrategy(p *fleet.Plan) error {
	st := &p.Strategy
	switch {
	case Known(st.Kind):
	case st.Kind == "":
		return fleet.FieldError(field("strategy.kind"), "is missing: say %s", KindList())
	default:
		return fleet.FieldError(field("strategy.kind"), "is %q, want %s", st.Kind, KindList())
	}
	if err := checkBatches(st); err != nil {
		return err
	}
	if err := checkStrategyFields(p); err != nil {
		return err
	}
	return Of(p).Check(p)
}

// checkStrategyFields refuses fields that the plan's strategy does not have.
func checkStrategyFields(p *fleet.Plan) error {
	kind := p.Strategy.Kind
	var paths []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[fleet.Strategy]()) {
		paths = append(paths, "strategy."+jsonName(f))
	}
	var others []string
	for path := range strategyOf(kind).traits.Refused {
		if !slices.Contains(paths, path) {
			others = append(others, path)
		}
	}
	slices.Sort(others)
	for _, path := range append(paths, others...) {
		if at, why := lacks(kind, path); why != "" && valueAt(p, path) != nil {
			return fleet.FieldError(field("%s", at), "%s", why)
		}
	}
	return nil
}

// lacks returns why a strategy does not have a field of plans, and which part of its path the reason is
// about; empty: it has it.
func lacks(kind fleet.StrategyKind, path string) (at, why string) {
	traits := &strategyOf(kind).traits
	for at = path; at != ""; at = at[:max(0, strings.LastIndexByte(at, '.'))] {
		if why := traits.Refused[at]; why != "" {
			return at, why
		}
	}
	rest, own := strings.CutPrefix(path, "strategy.")
	name, _, _ := strings.Cut(rest, ".")
	if !own || name == "kind" || slices.Contains(traits.Fields, name) {
		return "", ""
	}
	var owners []string
	for _, other := range strategies {
		if slices.Contains(other.traits.Fields, name) {
			owners = append(owners, string(other.traits.Kind))
		}
	}
	return "strategy." + name, fmt.Sprintf("belongs to %s, the strategy is %s", strings.Join(owners, " and "), kind)
}

// LocksPolicies reports whether a rollout locks its policies. One that is being cancelled offers nothing any
// more, so others may begin while it follows what it has delivered; one whose targets go together is
// being undone.
func LocksPolicies(r *fleet.Rollout) bool {
	return r.State.Active() && (r.State != fleet.RolloutCancelling || Together(r.Plan.Strategy.Kind))
}
