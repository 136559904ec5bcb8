package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
)

// changeTries bounds the attempts of Change and Put. An attempt fails only because another
// writer has changed the document within the milliseconds between reading and writing it. A
// document has few writers: operators, the rounds of one server or a few, and for an agent
// its check-ins. They do not win eight times in a row.
const changeTries = 8

// Versioned are the documents that Change reads and writes: a Collection, Rollouts or Agents.
type Versioned[T any] interface {
	Get(ctx context.Context, id string) (T, error)
	Update(ctx context.Context, v T) (revision int64, err error)
}

// Change reads a document, calls edit to alter it, and writes it back. It starts over if another
// writer changed the document in between, so edit may be called several times. Errors of edit
// are returned as they are. An edit that alters nothing writes nothing; written is false then.
// A document that is missing, or was deleted in between, is an error of kind NotFound.
//
// first is called before the first write and not again, with the document as it was and as it
// will be: an audit entry is written once, and nothing is changed without it.
//
// Change returns the document as it is stored, and the zero value with an error.
func Change[T any](ctx context.Context, documents Versioned[T], id string, edit func(T) (T, error), first ...func(was, next T) error) (v T, written bool, err error) {
	return change(ctx, documents, nil, id, func(was *T) (T, error) { return edit(*was) }, first)
}

// WithGet returns documents that get reads: that of a service, which reports a missing document
// in its own words.
func WithGet[T any](documents Versioned[T], get func(ctx context.Context, id string) (T, error)) Versioned[T] {
	return readBy[T]{documents, get}
}

type readBy[T any] struct {
	Versioned[T]
	get func(ctx context.Context, id string) (T, error)
}

func (r readBy[T]) Get(ctx context.Context, id string) (T, error) { return r.get(ctx, id) }

// Put is Change that creates the document if there is none: was is nil then for edit, and the
// zero value for first. A document that it created is returned without its revision.
func Put[T any](ctx context.Context, c Collection[T], id string, edit func(was *T) (T, error), first ...func(was, next T) error) (v T, written bool, err error) {
	return change(ctx, c, c.Create, id, edit, first)
}

func change[T any](ctx context.Context, documents Versioned[T], create func(context.Context, T) error, id string, edit func(*T) (T, error), first []func(was, next T) error) (T, bool, error) {
	var none T
	for try := 1; ; try++ {
		var known *T
		was, err := documents.Get(ctx, id)
		switch {
		case err == nil:
			known = &was
		case create == nil || fleet.KindOf(err) != fleet.NotFound:
			return none, false, err
		}
		next, same, err := edited(known, edit)
		if err != nil {
			return none, false, err
		}
		if known != nil {
			*revisionOf(&next) = *revisionOf(&was)
		}
		if same {
			return next, false, nil
		}
		for _, f := range first {
			if err := f(was, next); err != nil {
				return none, false, err
			}
		}
		first = nil
		if known == nil {
			err = create(ctx, next)
		} else {
			*revisionOf(&next), err = documents.Update(ctx, next)
		}
		if err == nil {
			return next, true, nil
		}
		kind := fleet.KindOf(err)
		again := kind == fleet.Conflict || kind == fleet.NotFound && create != nil
		if !again || try == changeTries {
			return none, false, err
		}
	}
}

// edited returns what edit makes of a document, and whether it would be stored as it was. It
// compares encodings, of which the first is made before edit: edit may write to lists that the
// document refers to.
func edited[T any](was *T, edit func(*T) (T, error)) (next T, same bool, err error) {
	var before, after []byte
	if was != nil {
		if before, err = json.Marshal(was); err != nil {
			return next, false, fmt.Errorf("encode a document: %w", err)
		}
	}
	if next, err = edit(was); err != nil || was == nil {
		return next, false, err
	}
	if after, err = json.Marshal(&next); err != nil {
		return next, false, fmt.Errorf("encode a document: %w", err)
	}
	return next, bytes.Equal(before, after), nil
}

// revisionOf returns a pointer to the revision of a document of a kind in the table.
func revisionOf[T any](v *T) *int64 {
	for _, k := range table {
		if head, ok := k.typed.(func(*T) (string, *int64)); ok {
			_, revision := head(v)
			return revision
		}
	}
	panic(fmt.Sprintf("store: %T is no document of a kind", v))
}

// ChangeAgents is Change for many agents, which it reads and writes together: an action may have
// the agents of a whole fleet. change returns false if there is nothing to write. Missing agents
// are left out.
func ChangeAgents(ctx context.Context, agents Agents, ids []string, change func(*fleet.Agent) bool) error {
	for try := 1; len(ids) > 0; try++ {
		list, err := agents.GetMany(ctx, ids)
		if err != nil {
			return err
		}
		changed := make([]fleet.Agent, 0, len(list))
		for i := range list {
			if change(&list[i]) {
				changed = append(changed, list[i])
			}
		}
		errs, err := agents.UpdateMany(ctx, changed)
		if err != nil {
			return err
		}
		ids = nil
		for i, err := range errs {
			switch kind := fleet.KindOf(err); {
			case err == nil || kind == fleet.NotFound:
			case kind == fleet.Conflict && try < changeTries:
				ids = append(ids, changed[i].ID)
			default:
				return err
			}
		}
	}
	return nil
}
