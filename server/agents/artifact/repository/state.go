package repository

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

// headID is the document that lists the files in effect. It is the only one that
// changes, so a publication is one atomic write, whichever server makes it.
const headID = "head"

// head is kept small: agents request the timestamp, and a root that does not exist yet,
// at every refresh.
type head struct {
	Files     []entry `json:"files"`
	Timestamp []byte  `json:"timestamp,omitempty"`
}

// entry names a file. Its bytes are in a document of their own, under their digest.
type entry struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Until is when a replaced file is deleted; nil for files in effect.
	Until *time.Time `json:"until,omitempty"`
}

// supersededLife is how long a replaced file is still served, for agents that have read
// the previous timestamp: a refresh fetches three files, each within FetchTimeout, up
// to three times.
const supersededLife = 9 * tuf.FetchTimeout

// state is the head with the files that it lists.
type state struct {
	head       head
	revision   int64
	repository tuf.Repository
}

// errChanged means that another server wrote first.
var errChanged = errors.New("the signed metadata changed meanwhile")

func (s *Service) head(ctx context.Context) (h head, revision int64, err error) {
	doc, err := s.files.Get(ctx, headID)
	if fleet.KindOf(err) == fleet.NotFound {
		return head{}, 0, nil
	}
	if err != nil {
		return head{}, 0, err
	}
	if err := json.Unmarshal(doc.Data, &h); err != nil {
		return head{}, 0, fmt.Errorf("trust files: head: %w", err)
	}
	return h, doc.Revision, nil
}

func (s *Service) load(ctx context.Context) (state, error) {
	h, revision, err := s.head(ctx)
	if err != nil {
		return state{}, err
	}
	var files [][]byte
	inEffect := map[string]bool{}
	for _, e := range h.Files {
		if e.Until != nil {
			continue
		}
		inEffect[e.Digest] = true
		data, err := s.bytes(ctx, e)
		if err != nil {
			return state{}, err
		}
		files = append(files, data)
	}
	if h.Timestamp != nil {
		files = append(files, h.Timestamp)
	}
	s.forget(inEffect)
	r, err := tuf.NewRepository(files...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooted = err == nil && r.Root() != nil
	return state{h, revision, r}, err
}

// bytes returns the bytes of a file, which never change under a digest and are cached.
func (s *Service) bytes(ctx context.Context, e entry) ([]byte, error) {
	s.mu.Lock()
	data, ok := s.read[e.Digest]
	s.mu.Unlock()
	if ok {
		return data, nil
	}
	doc, err := s.files.Get(ctx, e.Digest)
	if fleet.KindOf(err) == fleet.NotFound {
		return nil, fleet.Errorf(fleet.Unavailable, "the store has lost %s (%s): publish it again with `muster package keys publish`: %w", e.Name, e.Digest, err)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[e.Digest] = doc.Data
	return doc.Data, nil
}

// forget drops cached files that are no longer in effect.
func (s *Service) forget(inEffect map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for digest := range s.read {
		if !inEffect[digest] {
			delete(s.read, digest)
		}
	}
}

// save makes r the repository in effect, unless another server has written since from
// was loaded. If it fails after writing files, nothing refers to them, and a later
// upload of the same bytes reuses them.
func (s *Service) save(ctx context.Context, from state, r tuf.Repository) error {
	now := s.now.UTC()
	next, fresh, err := nextHead(from.head, r, now)
	if err != nil {
		return err
	}
	for digest, data := range fresh {
		err := s.files.Create(ctx, fleet.TrustFile{ID: digest, Data: data, AddedAt: now})
		if err != nil && fleet.KindOf(err) != fleet.Conflict {
			return err
		}
	}
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("trust files: head: %w", err)
	}
	doc := fleet.TrustFile{ID: headID, Data: text, AddedAt: now, Revision: from.revision}
	if from.revision == 0 {
		err = s.files.Create(ctx, doc)
	} else {
		_, err = s.files.Update(ctx, doc)
	}
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return fleet.Errorf(fleet.Conflict, "%w: try again", errChanged)
	}
	if err != nil {
		return err
	}
	for _, e := range from.head.Files {
		if !slices.ContainsFunc(next.Files, func(n entry) bool { return n.Digest == e.Digest }) {
			if err := s.files.Delete(ctx, e.Digest); err != nil {
				s.log.Warn("an obsolete signed file is left in the store", "file", e.Name, "error", err)
			}
		}
	}
	return nil
}

// nextHead lists the files of r and, for a while, those they replace. fresh are the
// bytes, by digest, that the previous head did not list.
func nextHead(before head, r tuf.Repository, now time.Time) (next head, fresh map[string][]byte, err error) {
	fresh = map[string][]byte{}
	next.Timestamp = r.Timestamp
	for _, data := range append(slices.Clone(r.Roots), r.Targets, r.Snapshot) {
		if data == nil {
			continue
		}
		info, err := tuf.Inspect(data)
		if err != nil {
			return head{}, nil, err
		}
		e := entry{Name: info.FileName, Digest: tuf.Digest(data)}
		if !slices.ContainsFunc(before.Files, func(b entry) bool { return b.Digest == e.Digest }) {
			fresh[e.Digest] = data
		}
		next.Files = append(next.Files, e)
	}
	for _, e := range before.Files {
		if slices.ContainsFunc(next.Files, func(n entry) bool { return n.Name == e.Name }) {
			continue
		}
		if e.Until == nil {
			until := now.Add(supersededLife)
			e.Until = &until
		}
		if now.Before(*e.Until) {
			next.Files = append(next.Files, e)
		}
	}
	return next, fresh, nil
}
