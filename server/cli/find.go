package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// things are those of a noun that subcommands find by a word: an id, the beginning of one, a name or
// lastThing.
type things struct {
	noun string
	list func(ctx context.Context) ([]thing, error)
}

type thing struct {
	id, name string
	at       time.Time // when it came to be
}

const (
	// lastThing is the word for the newest one.
	lastThing = "@last"
	// minPrefix is how much of an id finds it, as in git: less is more likely a slip.
	minPrefix = 4
)

// findLong is part of the help of nouns whose things are found.
const findLong = " is an id, the beginning of one that no other has, a name, or @last for the newest."

// wholeID matches the ids that the server makes: such a word needs no search.
var wholeID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// find makes all subcommands find the arguments that these words stand for in their usage.
func (a *client) find(root *cobra.Command) {
	for word, k := range map[string]things{"ROLLOUT": a.allRollouts(), "GROUP": a.allGroups(), "INCIDENT": a.allIncidents(), "WEBHOOK": a.allWebhooks()} {
		k.finding(root, word)
	}
}

// finding makes cmd and the subcommands below it find their arguments that word stands for in the usage:
// the first one, or all of them if it is followed by an ellipsis.
func (k things) finding(cmd *cobra.Command, word string) {
	for _, sub := range cmd.Commands() {
		k.finding(sub, word)
	}
	_, usage, _ := strings.Cut(cmd.Use, " ")
	usage = strings.TrimPrefix(usage, "[")
	if !strings.HasPrefix(usage, word) {
		return
	}
	many, run := strings.HasPrefix(usage, word+"..."), cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args = slices.Clone(args)
		for i := range args {
			if i > 0 && !many {
				break
			}
			var err error
			if args[i], err = k.find(cmd.Context(), args[i]); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
}

// find returns the id that a word stands for. A word that stands for nothing is returned as it is,
// for the server to refuse. So is one whose list cannot be read: the request that follows says why,
// unless the subcommand is used wrongly, which it says first.
func (k things) find(ctx context.Context, word string) (string, error) {
	if word == "" || wholeID.MatchString(word) {
		return word, nil
	}
	all, err := k.list(ctx)
	if err != nil {
		return word, ctx.Err()
	}
	return k.pick(word, all)
}

func (k things) pick(word string, all []thing) (string, error) {
	if word == lastThing {
		if len(all) == 0 {
			return "", fmt.Errorf("%s: there is no %s", lastThing, k.noun)
		}
		return slices.MaxFunc(all, func(x, y thing) int { return x.at.Compare(y.at) }).id, nil
	}
	for _, is := range []struct {
		how string
		of  func(thing) bool
	}{
		{"the id", func(t thing) bool { return t.id == word }},
		{"the name", func(t thing) bool { return t.name == word }},
		{"an id that begins with", func(t thing) bool { return len(word) >= minPrefix && strings.HasPrefix(t.id, word) }},
	} {
		var found []string
		for _, t := range all {
			if is.of(t) {
				found = append(found, t.id)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return "", fmt.Errorf("%d %ss have %s %s: write the id, such as %s", len(found), k.noun, is.how, word, strings.Join(found[:min(len(found), candidatesShown)], " or "))
		}
	}
	return word, nil
}

// thingsOf returns the things of a list that comes in pages.
func thingsOf[T, Out any](a *client, noun string, op adminapi.Operation[adminapi.None, Out], describe func(T) thing) things {
	return things{noun, func(ctx context.Context) ([]thing, error) {
		all, err := everyPage[T](ctx, a, op, maxListed, nil)
		return each(all.Items, describe), err
	}}
}

func (a *client) allRollouts() things {
	return thingsOf(a, "rollout", adminapi.ListRollouts, func(r adminapi.Rollout) thing { return thing{r.ID, r.Plan.Name, r.CreatedAt} })
}

func (a *client) allGroups() things {
	return thingsOf(a, "group", adminapi.ListGroups, func(g adminapi.RolloutGroup) thing { return thing{g.ID, g.Plan.Name, g.CreatedAt} })
}

func (a *client) allIncidents() things {
	return thingsOf(a, "incident", adminapi.ListIncidents, func(i adminapi.Incident) thing { return thing{i.ID, i.Title, i.OpenedAt} })
}

func (a *client) allWebhooks() things {
	return things{"webhook", func(ctx context.Context) ([]thing, error) {
		all, err := ask(ctx, a, adminapi.ListWebhooks, nil)
		return each(all.Items, func(h adminapi.Webhook) thing { return thing{h.Id, h.Name, h.CreatedAt} }), err
	}}
}
