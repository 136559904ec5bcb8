package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// errReadOnly is the error of every write to a store that was opened with
// Options.ReadOnly.
var errReadOnly = fleet.Errorf(fleet.Internal, "the store is open for reading only: it takes no writes")

// movedSetting is the name of the setting that holds the mark. Settings.Each hides it.
const movedSetting = "store-moved"

// MarkMoved records in the file that its documents were moved. Open refuses a marked file.
func (s *Store) MarkMoved(ctx context.Context, m store.Moved) error {
	doc, err := encode("mark", movedSetting, m)
	if err != nil {
		return err
	}
	return s.write(ctx, "mark as moved", func(t *tx) error {
		_, err := t.exec(`INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2`, movedSetting, []byte(doc))
		return err
	})
}

// Moved returns the mark, or nil if there is none.
func (s *Store) Moved(ctx context.Context) (*store.Moved, error) {
	m, err := readMoved(ctx, s.readers.DB)
	return m, s.fault("read", err)
}

// Unmark removes the mark from the file at path and returns it, or nil if there was none.
// It ends the store's generation, since agents have acknowledged actions that the file
// lacks.
func Unmark(ctx context.Context, path string) (*store.Moved, error) {
	s, err := Open(ctx, path, Options{Moved: true})
	if err != nil {
		return nil, err
	}
	m, err := s.Moved(ctx)
	if err == nil && m != nil {
		err = s.write(ctx, "remove the mark", func(t *tx) error {
			_, err := t.exec(`DELETE FROM settings WHERE name IN (?, ?)`, movedSetting, store.GenerationSetting)
			return err
		})
	}
	return m, errors.Join(err, s.Close())
}

func readMoved(ctx context.Context, db *sql.DB) (*store.Moved, error) {
	var v []byte
	err := db.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = ?`, movedSetting).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := new(store.Moved)
	if err := json.Unmarshal(v, m); err != nil {
		return nil, fmt.Errorf("the mark of a moved store cannot be decoded: %w", err)
	}
	return m, nil
}

func refuseMoved(ctx context.Context, db *sql.DB, path string, opts Options) error {
	if opts.Moved {
		return nil
	}
	m, err := readMoved(ctx, db)
	switch {
	case err != nil:
		return fmt.Errorf("open: %w", fault(path, "read", err))
	case m == nil:
		return nil
	}
	return fmt.Errorf("database %s: this store was moved to %s on %s: start the server with the configuration that names the new store. To return to this file, without any later change, run `muster store unmark` with its data folder",
		path, m.To, m.At.UTC().Format(time.DateTime+" MST"))
}
