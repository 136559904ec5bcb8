package declare

import (
	"context"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// The commands that operators give to objects, as the API names them. All but resume and delete
// are changes of the spec.
const (
	commandResume  = "resume"
	commandPause   = "pause"
	commandUnpause = "unpause"
	commandPromote = "promote"
	commandDelete  = "delete"
)

// Commands returns which commands are possible for an object, and why the others are not. The
// primary command, if there is one, comes first.
func (s *Service) Commands(ctx context.Context, name string) ([]fleet.Command, error) {
	o, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	promote, err := s.promoteCommand(ctx, &o)
	if err != nil {
		return nil, err
	}
	list := []fleet.Command{
		checkResume(&o).Command(commandResume), checkPaused(&o, true).Command(commandPause), checkPaused(&o, false).Command(commandUnpause),
		promote,
		{Name: commandDelete, Allowed: true, Danger: true},
	}
	for i := range list {
		if c := list[i]; c.Allowed && (c.Name == commandResume || c.Name == commandUnpause) {
			c.Primary = true
			return append([]fleet.Command{c}, slices.Delete(list, i, i+1)...), nil
		}
	}
	return list, nil
}

func checkResume(o *Object) *fleet.Refusal {
	if o.Status.Suspended == nil {
		return &fleet.Refusal{Text: "is not suspended: nobody has taken its agents over"}
	}
	return nil
}

// checkPaused returns why setting spec.paused to a value would change nothing; nil: it would.
func checkPaused(o *Object, paused bool) *fleet.Refusal {
	switch {
	case o.Spec.Paused != paused:
		return nil
	case paused:
		return &fleet.Refusal{Text: "is paused already", Done: true}
	}
	return &fleet.Refusal{Text: "is not paused", Done: true}
}

// promoteCommand returns whether spec.forcePromote with the requested hash would promote the
// rollout under way. The loop promotes it by the same check.
func (s *Service) promoteCommand(ctx context.Context, o *Object) (fleet.Command, error) {
	refused := func(text string) fleet.Command {
		c := (&fleet.Refusal{Text: text}).Command(commandPromote)
		c.Danger = true
		return c
	}
	st := &o.Status
	switch {
	case st.RequestedRolloutHash == "" || st.Rollout == nil:
		return refused("has no rollout: none has been requested yet"), nil
	case o.Spec.ForcePromote == st.RequestedRolloutHash:
		return refused("has the hash in spec.forcePromote already"), nil
	}
	r, err := s.Rollouts.Get(ctx, st.Rollout.ID)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return refused("has no rollout under way"), nil
	}
	if err != nil {
		return fleet.Command{}, err
	}
	commands, err := s.Rollouts.Commands(ctx, &r)
	if err != nil {
		return fleet.Command{}, err
	}
	c := commands[slices.IndexFunc(commands, func(c fleet.Command) bool { return c.Name == plan.CommandPromote })]
	// The loop gives the reason, and the rollout's commands say it of the rollout.
	c.Primary, c.NeedsReason = false, false
	if !c.Allowed {
		c.Reason = "Its rollout" + strings.TrimPrefix(c.Reason, "It")
	}
	return c, nil
}
