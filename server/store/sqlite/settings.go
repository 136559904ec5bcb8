package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/muster-fleet/muster/server/store"
)

type settings struct{ s *Store }

func (g settings) Get(ctx context.Context, name string) ([]byte, error) {
	var stored []byte
	err := g.s.get(ctx, `SELECT value FROM settings WHERE name = ?`, []any{name}, &stored)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.Missing("setting", name)
	}
	return stored, err
}

func (g settings) GetOrPut(ctx context.Context, name string, v []byte) ([]byte, error) {
	var stored []byte
	err := g.s.get(ctx, `SELECT value FROM settings WHERE name = ?`, []any{name}, &stored)
	if !errors.Is(err, sql.ErrNoRows) {
		return stored, err
	}
	v = append([]byte{}, v...) // not nil, which would be NULL
	return apply(ctx, g.s, "store setting", func(t *tx) ([]byte, error) {
		if _, err := t.exec(`INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING`, name, v); err != nil {
			return nil, err
		}
		var stored []byte
		err := t.get(`SELECT value FROM settings WHERE name = ?`, []any{name}, &stored)
		return slices.Clone(stored), err
	})
}

func (g settings) Delete(ctx context.Context, name string) error {
	return g.s.write(ctx, "delete setting", func(t *tx) error {
		_, err := t.exec(`DELETE FROM settings WHERE name = ?`, name)
		return err
	})
}

func (g settings) Each(ctx context.Context, f func(name string, v []byte)) error {
	return g.s.each(ctx, `SELECT name, value FROM settings WHERE name NOT IN (?, ?)`, []any{movedSetting, probeSetting}, func(scan scan) error {
		var name string
		var v []byte
		if err := scan(&name, &v); err != nil {
			return err
		}
		f(name, v)
		return nil
	})
}
