// Package view keeps the views of lists that operators save for all.
package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
)

// Service keeps views in a store.
type Service struct {
	Store store.Store
	Now   clock.Clock
}

// List returns all views by name.
func (s *Service) List(ctx context.Context) ([]fleet.View, error) {
	all, _, err := s.Store.Views().List(ctx, 0, 0)
	slices.SortFunc(all, func(a, b fleet.View) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Name, b.Name), cmp.Compare(a.Page, b.Page))
	})
	return all, err
}

// Save stores a view of a page. It replaces the one with the same name.
func (s *Service) Save(ctx context.Context, page fleet.ViewPage, name, search, actor string) (fleet.View, error) {
	v := fleet.View{Page: page, Name: strings.TrimSpace(name), Search: strings.TrimPrefix(search, "?"), CreatedBy: actor, CreatedAt: s.Now.UTC()}
	if err := v.Check(); err != nil {
		return v, err
	}
	v.ID = fleet.ViewID(v.Page, v.Name)
	views := s.Store.Views()
	return v, s.Store.Exclusively(ctx, "views", func(ctx context.Context) error {
		_, _, err := store.Put(ctx, views, v.ID, func(old *fleet.View) (fleet.View, error) {
			if old != nil {
				return v, nil
			}
			_, total, err := views.List(ctx, 0, 1)
			if err == nil && total >= fleet.MaxViews {
				err = fleet.Errorf(fleet.Conflict, "there are %d saved views, as many as there can be: delete some that nobody needs", total)
			}
			return v, err
		}, func(was, v fleet.View) error {
			entry := fleet.AuditEntry{Actor: v.CreatedBy, Verb: "view.save", Subject: v.ID, Text: fmt.Sprintf("saved the view %q of the page %s", v.Name, v.Page)}
			if was.ID != "" {
				entry.Data = audit.ChangeData(audit.Changes(was, v))
			}
			return audit.Record(ctx, s.Store.Audit(), v.CreatedAt, entry)
		})
		return err
	})
}

// Delete removes a view.
func (s *Service) Delete(ctx context.Context, id string) error {
	if _, err := s.Store.Views().Get(ctx, id); err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = fleet.Errorf(fleet.NotFound, "there is no saved view %s", id)
		}
		return err
	}
	return s.Store.Views().Delete(ctx, id)
}
