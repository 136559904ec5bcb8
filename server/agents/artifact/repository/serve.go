package repository

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

// fileName matches the files that agents may request; sixteen digits hold every
// version.
var fileName = regexp.MustCompile(`^(timestamp|[1-9][0-9]{0,15}\.(root|targets|snapshot))\.json$`)

// immutable is the Cache-Control of files with a version in their name, which never
// change.
const immutable = "public, max-age=31536000, immutable"

// Serve responds to a GET or HEAD of a file by its name. It requires no key: the files
// are signed, and hosts read them before they are enrolled.
func (s *Service) Serve(w http.ResponseWriter, r *http.Request, name string) error {
	// Not found must not be cached: agents request the next root before it exists.
	w.Header().Set("Cache-Control", "no-cache")
	if !fileName.MatchString(name) {
		return fleet.Errorf(fleet.NotFound, "there is no signed file of that name: want %s or one such as %s", tuf.TimestampFile, tuf.FileName(tuf.RoleRoot, 1))
	}
	h, _, err := s.head(r.Context())
	if err != nil {
		return err
	}
	data := h.Timestamp
	if name != tuf.TimestampFile {
		i := slices.IndexFunc(h.Files, func(e entry) bool { return e.Name == name })
		if i < 0 {
			return notPublished(name)
		}
		if data, err = s.bytes(r.Context(), h.Files[i]); err != nil {
			return err
		}
		w.Header().Set("Cache-Control", immutable)
	}
	if data == nil {
		return notPublished(name)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", `"`+tuf.Digest(data)+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	return nil
}

func notPublished(name string) error {
	return fleet.Errorf(fleet.NotFound, "%s is not published here: publishers do that with `muster package keys publish`", name)
}
