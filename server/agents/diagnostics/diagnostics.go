// Package diagnostics keeps the files that agents send when an operator requests their
// diagnostics: it accepts them in chunks, serves them, and removes them. The handlers of
// agents and of the admin API call it, and package retention removes what is old.
package diagnostics

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// MaxFile bounds one file; the figure is Fleet Server's.
	MaxFile = 100 << 20
	// maxTotal bounds all files: a hundred of the largest. For more, the oldest go.
	maxTotal = 10 << 30
	// maxFiles bounds the number of files, since all of their documents are read when one
	// begins: a diagnosis of that many hosts needs other tools.
	maxFiles = 2_000
	// maxTransfer is how long a transfer may take; the figure is Fleet Server's.
	maxTransfer = 24 * time.Hour
	// Age is how long files are kept, as in Fleet.
	Age = 90 * 24 * time.Hour
	// listedFor is how long a request is listed that has no file, as in Kibana.
	listedFor = 89 * 24 * time.Hour
	// maxName bounds the name of a file, in bytes, as file systems do.
	maxName = 255
	// maxID bounds the id of an action, in bytes. Kibana's have 36.
	maxID = 128
)

// Service keeps the files. Without store.PackageData their bytes are in Dir.
type Service struct {
	Store store.Store
	Dir   string
	Disk  disk.Disk
	Now   clock.Clock
}

// refusal is an error with a code of Fleet Server.
func refusal(code, format string, args ...any) error {
	return &fleet.Error{Kind: fleet.Invalid, Code: code, Message: fmt.Sprintf(format, args...)}
}

// check validates the announcement of a file, in the order of Fleet Server.
func check(r *agentapi.UploadBegin) error {
	for _, f := range []struct{ name, value string }{
		{"file.name", r.File.Name}, {"file.mime_type", r.File.MIMEType}, {"action_id", r.ActionID}, {"agent_id", r.AgentID}, {"src", r.Source},
	} {
		if strings.TrimSpace(f.value) == "" {
			return refusal("ErrFieldRequired", "%s is required: field required", f.name)
		}
	}
	switch size := r.File.Size; {
	case size == nil:
		return refusal("ErrFileSizeRequired", "file.size is required")
	case *size <= 0:
		return refusal("ErrInvalidFileSize", "file.size: %d: invalid filesize", *size)
	case *size > MaxFile:
		return refusal("ErrFileSizeTooLarge", "this file exceeds the maximum allowed file size: it has %d bytes, at most %d are accepted", *size, MaxFile)
	case r.Source != agentapi.UploadSource:
		return fleet.FieldError("body.src", "is %q, this server takes the files of %q", r.Source, agentapi.UploadSource)
	case len(r.File.Name) > maxName || strings.ContainsAny(r.File.Name, `/\`) || strings.ContainsFunc(r.File.Name, unicode.IsControl):
		return fleet.FieldError("body.file.name", "is not the name of a file: want at most %d bytes without slashes and control characters", maxName)
	case len(r.ActionID) > maxID:
		return fleet.FieldError("body.action_id", "has %d bytes, at most %d are accepted", len(r.ActionID), maxID)
	}
	return nil
}

// Begin announces a file of the agent. A file that the agent has begun for the same action
// is replaced: the agent was restarted meanwhile.
func (s *Service) Begin(ctx context.Context, agent fleet.Agent, r agentapi.UploadBegin) (fleet.Upload, error) {
	if err := check(&r); err != nil {
		return fleet.Upload{}, err
	}
	size := *r.File.Size
	u := fleet.Upload{
		ID: fleet.NewID(), ActionID: r.ActionID, AgentID: agent.ID, Name: r.File.Name, MIMEType: r.File.MIMEType, Size: size,
		Requested: agent.DiagnosticsRequested(r.ActionID), Status: fleet.UploadAwaiting, StartedAt: s.Now.UTC(),
	}
	for left := size; left > 0; left -= agentapi.ChunkSize {
		u.Chunks = append(u.Chunks, fleet.Chunk{Size: min(left, agentapi.ChunkSize)})
	}
	all, _, err := s.Store.Uploads().List(ctx, 0, 0)
	if err != nil {
		return u, err
	}
	gone, ok := room(all, &u)
	if !ok {
		return u, fleet.Errorf(fleet.Unavailable, "this server keeps as many files of agents as it can: delete some diagnostics, or wait until older ones expire")
	}
	for i := range gone {
		if err := s.remove(ctx, &gone[i]); err != nil {
			return u, err
		}
	}
	if err := s.bytes().room(size); err != nil {
		return u, err
	}
	return u, s.Store.Uploads().Create(ctx, u)
}

// room returns the uploads to remove so that u can be kept beside the others, which are in
// the order of their age, the newest first. ok is false if there is no room. A file that
// nobody has requested never replaces one that was.
func room(all []fleet.Upload, u *fleet.Upload) (gone []fleet.Upload, ok bool) {
	var (
		kept  []fleet.Upload
		total = u.Size
		own   = 1
	)
	for _, o := range all {
		if o.AgentID == u.AgentID && (o.ActionID == u.ActionID || own == fleet.MaxDiagnostics) {
			gone = append(gone, o)
			continue
		}
		if o.AgentID == u.AgentID {
			own++
		}
		kept, total = append(kept, o), total+o.Size
	}
	count := len(kept) + 1
	for _, requested := range []bool{false, true} {
		for _, o := range slices.Backward(kept) {
			if total <= maxTotal && count <= maxFiles {
				return gone, true
			}
			if o.Requested == requested && (u.Requested || !requested) {
				gone, total, count = append(gone, o), total-o.Size, count-1
			}
		}
	}
	return gone, total <= maxTotal && count <= maxFiles
}

// begun returns an unfinished upload of the agent.
func (s *Service) begun(ctx context.Context, agentID, id string) (fleet.Upload, error) {
	u, err := s.Store.Uploads().Get(ctx, id)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return u, refusal("ErrInvalidFileID", "file not found with this ID, it may have been removed")
	case err != nil:
		return u, err
	case u.AgentID != agentID:
		return u, &fleet.Error{Kind: fleet.Forbidden, Code: "ErrAgentIdentity", Message: "another agent has begun this upload"}
	}
	return u, nil
}

// Open checks that a chunk is expected, before its bytes are read.
func (s *Service) Open(ctx context.Context, agentID, id string, n int) (fleet.Upload, error) {
	u, err := s.begun(ctx, agentID, id)
	switch {
	case err != nil:
		return u, err
	case s.Now.UTC().After(u.StartedAt.Add(maxTransfer)):
		return u, refusal("ErrUploadExpired", "upload has expired")
	case u.Status != fleet.UploadAwaiting:
		return u, refusal("ErrUploadStopped", "upload has stopped")
	case n < 0 || n >= len(u.Chunks):
		return u, refusal("ErrInvalidChunkNum", "invalid chunk number")
	}
	return u, nil
}

// chunkSize returns how long chunk n of u is, as it was announced.
func chunkSize(u *fleet.Upload, n int) int64 {
	return min(agentapi.ChunkSize, u.Size-int64(n)*agentapi.ChunkSize)
}

// Chunk stores the bytes of a chunk of u, which Open has returned. digest is what the agent
// says is their SHA-256.
func (s *Service) Chunk(ctx context.Context, u fleet.Upload, n int, digest string, body []byte) error {
	if most := chunkSize(&u, n); int64(len(body)) > most {
		return fleet.Errorf(fleet.TooLarge, "chunk %d has %d bytes, the announced file leaves %d for it", n, len(body), most)
	}
	sum := sha256.Sum256(body)
	if !strings.EqualFold(digest, hex.EncodeToString(sum[:])) {
		return refusal("ErrHashMismatch", "hash does not match")
	}
	head := header(u.ID, n)
	stored := slices.Concat(head, body)
	key := sha256.Sum256(stored)
	chunk := fleet.Chunk{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body)), Key: hex.EncodeToString(key[:])}
	if err := s.bytes().put(ctx, chunk.Key, stored); err != nil {
		return err
	}
	var was fleet.Chunk
	open := func(ctx context.Context, id string) (fleet.Upload, error) { return s.Open(ctx, u.AgentID, id, n) }
	_, _, err := store.Change(ctx, store.WithGet(s.Store.Uploads(), open), u.ID, func(u fleet.Upload) (fleet.Upload, error) {
		was = u.Chunks[n]
		u.Chunks[n] = chunk
		return u, nil
	})
	switch {
	case err == nil && was.Key != "" && was.Key != chunk.Key:
		return s.bytes().remove(ctx, was.Key) // sent again with other bytes
	case err != nil && (fleet.KindOf(err) == fleet.Invalid || fleet.KindOf(err) == fleet.NotFound):
		return errors.Join(err, s.bytes().remove(ctx, chunk.Key)) // it has ended meanwhile, so nobody stores these bytes any more
	}
	return err
}

// header is stored before the bytes of a chunk. It makes the stored bytes unique, so that
// they can be removed although stores name them by their content.
func header(id string, n int) []byte { return fmt.Appendf(nil, "%s/%d\n", id, n) }

// Complete ends an upload. transit is the SHA-256 of the concatenated digests of the chunks.
func (s *Service) Complete(ctx context.Context, agentID, id, transit string) error {
	u, err := s.begun(ctx, agentID, id)
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(transit) == "":
		return refusal("TransitHashRequired", "Transit hash required")
	case u.Status != fleet.UploadAwaiting:
		return refusal("ErrStatusNoUploads", "file closed, not accepting uploads")
	case slices.ContainsFunc(u.Chunks, func(c fleet.Chunk) bool { return c.SHA256 == "" }):
		return refusal("ErrMissingChunks", "file data incomplete, not all chunks were uploaded")
	}
	if !whole(&u, strings.TrimSpace(transit)) {
		if err := s.end(ctx, u, fleet.UploadError); err != nil {
			return err
		}
		return refusal("ErrFailValidation", "file contents failed validation")
	}
	u.Status = fleet.UploadReady
	_, err = s.Store.Uploads().Update(ctx, u)
	return err
}

// whole reports whether the chunks are the file that was announced.
func whole(u *fleet.Upload, transit string) bool {
	size := int64(0)
	sum := sha256.New()
	for i, c := range u.Chunks {
		digest, err := hex.DecodeString(c.SHA256)
		if err != nil || i < len(u.Chunks)-1 && c.Size != agentapi.ChunkSize {
			return false
		}
		sum.Write(digest)
		size += c.Size
	}
	return size == u.Size && strings.EqualFold(transit, hex.EncodeToString(sum.Sum(nil)))
}

// end removes the bytes of an upload and keeps its record. The record is written first: one
// without bytes is no file, while bytes without a record would stay.
func (s *Service) end(ctx context.Context, u fleet.Upload, status fleet.UploadStatus) error {
	was := u.Chunks
	u.Status, u.Size, u.Chunks = status, 0, nil
	if _, err := s.Store.Uploads().Update(ctx, u); err != nil {
		return err
	}
	return s.removeBytes(ctx, was)
}

// remove removes an upload. Its bytes go first, so that they never stay without a record.
func (s *Service) remove(ctx context.Context, u *fleet.Upload) error {
	if err := s.removeBytes(ctx, u.Chunks); err != nil {
		return err
	}
	return s.Store.Uploads().Delete(ctx, u.ID)
}

func (s *Service) removeBytes(ctx context.Context, chunks []fleet.Chunk) error {
	var errs []error
	for _, c := range chunks {
		if c.Key != "" {
			errs = append(errs, s.bytes().remove(ctx, c.Key))
		}
	}
	return errors.Join(errs...)
}

// File is a request for the diagnostics of an agent, and the file that it has sent.
type File struct {
	ID       string // of the upload; of the action while there is none
	ActionID string
	Name     string
	Uploaded bool // Name can be downloaded, now or soon
	At       time.Time
	Status   string
	Error    string
}

// The states of a request without a file, in Kibana's terms.
const (
	InProgress = "IN_PROGRESS"
	Expired    = "EXPIRED"
	Failed     = "FAILED"
)

// List returns the requests for the diagnostics of an agent, newest first.
func (s *Service) List(ctx context.Context, agent fleet.Agent) ([]File, error) {
	all, _, err := s.Store.Uploads().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	list := []File{}
	for _, r := range slices.Backward(agent.Diagnostics) {
		f := File{
			ID: r.ActionID, ActionID: r.ActionID, At: r.At, Status: InProgress,
			Name: "elastic-agent-diagnostics-" + r.At.UTC().Format("2006-01-02T15-04-05") + "Z-00.zip",
		}
		res, err := s.Store.Results().Get(ctx, r.ActionID, agent.ID)
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return nil, err
		}
		f.Error = res.Error
		at := slices.IndexFunc(all, func(u fleet.Upload) bool { return u.AgentID == agent.ID && u.ActionID == r.ActionID })
		switch {
		case at >= 0 && all[at].Status == fleet.UploadDeleted, at < 0 && now.Sub(r.At) > listedFor:
			continue
		case at >= 0:
			f.ID, f.Name, f.Uploaded, f.Status = all[at].ID, all[at].Name, true, string(all[at].Status)
		case now.After(r.Until):
			f.Status = Expired
		case f.Error != "":
			f.Status = Failed
		}
		list = append(list, f)
	}
	return list, nil
}

// Get returns a complete file.
func (s *Service) Get(ctx context.Context, id string) (fleet.Upload, error) {
	u, err := s.Store.Uploads().Get(ctx, id)
	if err == nil && u.Status != fleet.UploadReady {
		err = fleet.Errorf(fleet.NotFound, "the file %s is not complete, or was deleted: its status is %s", id, u.Status)
	}
	return u, err
}

// Copy writes the bytes of a complete file to w.
func (s *Service) Copy(ctx context.Context, u fleet.Upload, w io.Writer) error {
	for n, c := range u.Chunks {
		sum := sha256.New()
		body := &skipping{w: io.MultiWriter(w, sum), left: len(header(u.ID, n))}
		if err := s.bytes().get(ctx, c.Key, body); err != nil {
			return fmt.Errorf("chunk %d of the file %s: %w", n, u.ID, err)
		}
		if hex.EncodeToString(sum.Sum(nil)) != c.SHA256 {
			return fleet.Errorf(fleet.Unavailable, "the bytes of the file %s are damaged: request the diagnostics again", u.ID)
		}
	}
	return nil
}

// skipping drops the first bytes that are written to it.
type skipping struct {
	w    io.Writer
	left int
}

func (s *skipping) Write(p []byte) (int, error) {
	skip := min(s.left, len(p))
	s.left -= skip
	n, err := s.w.Write(p[skip:])
	return n + skip, err
}

// Delete removes the bytes of a file.
func (s *Service) Delete(ctx context.Context, id, actor string) error {
	u, err := s.Store.Uploads().Get(ctx, id)
	if err != nil {
		return err
	}
	err = audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
		Actor: actor, Verb: "diagnostics.delete", Subject: id, Text: "deleted the diagnostics " + u.Name + " of agent " + u.AgentID,
	})
	if err != nil {
		return err
	}
	return s.end(ctx, u, fleet.UploadDeleted)
}

// expireBatch bounds the files that one call of Expire removes.
const expireBatch = 50

// Expire removes files that are old, and unfinished ones that are no longer sent.
func (s *Service) Expire(ctx context.Context) error {
	all, _, err := s.Store.Uploads().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	now := s.Now.UTC()
	errs := []error{s.sweep(ctx, all, now)}
	for _, u := range slices.Backward(all) {
		age := now.Sub(u.StartedAt)
		if age <= Age && (u.Status != fleet.UploadAwaiting || age <= maxTransfer) {
			continue
		}
		errs = append(errs, s.remove(ctx, &u))
		if len(errs) > expireBatch {
			break
		}
	}
	return errors.Join(errs...)
}

// sweepAfter is how old bytes are that no record has when they are removed. The record of a chunk
// follows its bytes within seconds.
const sweepAfter = time.Hour

// sweep removes bytes that no record has: the server was killed, or the store was away, between
// the two. Package artifact does so where the bytes are in the store, among those of packages.
func (s *Service) sweep(_ context.Context, all []fleet.Upload, now time.Time) error {
	in, ok := s.bytes().(folder)
	if !ok {
		return nil
	}
	recorded := map[string]bool{}
	for _, u := range all {
		for _, c := range u.Chunks {
			recorded[c.Key] = true
		}
	}
	return in.sweep(func(name string, written time.Time) bool { return !recorded[name] && now.Sub(written) > sweepAfter }, expireBatch)
}
