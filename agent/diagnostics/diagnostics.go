// Package diagnostics collects what explains the state of an agent into a zip file: its
// version, state, settings, records of upgrades, logs and goroutines. It leaves out the
// files with keys, and replaces what looks like a secret in the others. The daemon sends
// the file to the server; the command diagnostics writes it on the host.
package diagnostics

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/beacon"
)

const (
	// maxLog is how much of the end of a log is included: a week of a busy agent. There are
	// four logs, which compress to a tenth.
	maxLog = 5 << 20
	// maxRecord bounds every other file, which has some KB.
	maxRecord = 1 << 20
	op        = "diagnostics"
)

// Source is an agent whose diagnostics are collected.
type Source struct {
	Disk disk.Disk
	Top  string
	// Version describes the running version and its host.
	Version any
	// Health is the agent's state; nil if it does not run.
	Health any
	// Problem is why Health is missing.
	Problem string
	// Goroutines are those of this process. They are left out unless it is the agent.
	Goroutines bool
	// Key is the key that the agent uses, beside those that are stored on the host.
	Key string
	Now time.Time
}

// records are the files of a host that describe its upgrades. None has a secret.
var records = []string{
	layout.ConfigFile, layout.ActiveCommitFile, layout.MarkerFile, layout.DecisionFile, layout.OutcomeFile, layout.RequestFile, layout.VersionsFile, layout.StageJournalFile,
	layout.JournalFile, layout.FailureFile, layout.ServiceFile,
}

var logs = []string{layout.AgentLogFile, layout.AgentLogFile + ".1", layout.WatcherLogFile, layout.WatcherLogFile + ".1"}

// FileName returns the name of a file collected at a time, in the form of Elastic's agents.
func FileName(at time.Time) string {
	return "muster-agent-diagnostics-" + at.UTC().Format("2006-01-02T15-04-05") + "Z-00.zip"
}

// Collect writes the zip file to w. A part that cannot be read is described in errors.txt.
func (s Source) Collect(w io.Writer) error {
	z := zip.NewWriter(w)
	hide := s.redactor()
	var problems strings.Builder
	if s.Problem != "" {
		fmt.Fprintf(&problems, "state.json: %s\n", s.Problem)
	}
	add := func(name string, b []byte) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: s.Now})
		if err != nil {
			return err
		}
		_, err = f.Write(hide(b))
		return err
	}
	addJSON := func(name string, v any) error {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		return add(name, append(b, '\n'))
	}
	if err := addJSON("version.json", s.Version); err != nil {
		return err
	}
	if s.Health != nil {
		if err := addJSON("state.json", s.Health); err != nil {
			return err
		}
	}
	for _, names := range []struct {
		list []string
		max  int64
	}{{records, maxRecord}, {logs, maxLog}} {
		for _, name := range names.list {
			b, err := s.end(layout.Path(s.Top, name), names.max)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				fmt.Fprintf(&problems, "%s: %v\n", name, err)
				continue
			}
			if err := add(name, b); err != nil {
				return err
			}
		}
	}
	if s.Goroutines {
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			fmt.Fprintf(&problems, "goroutines.txt: %v\n", err)
		} else if err := add("goroutines.txt", b.Bytes()); err != nil {
			return err
		}
	}
	if problems.Len() > 0 {
		if err := add("errors.txt", []byte(problems.String())); err != nil {
			return err
		}
	}
	return z.Close()
}

// end returns the last bytes of a file, from the beginning of a line.
func (s Source) end(path string, limit int64) ([]byte, error) {
	f, err := s.Disk.OpenFile(op, path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	from := max(0, size-limit)
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit)) // the file may grow meanwhile
	if from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return b, err
}

const hidden = "[hidden]"

var (
	// named matches a value whose name says that it is a secret, in JSON, YAML, logs and
	// command lines.
	named = regexp.MustCompile(`(?i)((?:--[\w-]*(?:key|token|password|secret)\s+|[\w-]*(?:api[_-]?key|token|password|passwd|secret|authorization)["']?\s*[:=]\s*)["']?(?:(?:ApiKey|Bearer|Basic)\s+)?)([^\s"',}]+)`)
	// scheme matches the credentials of a header.
	scheme = regexp.MustCompile(`(?i)\b(ApiKey|Bearer|Basic)\s+[A-Za-z0-9+/_=.-]{8,}`)
	// userInfo matches the name and the password in a URL.
	userInfo = regexp.MustCompile(`://[^/\s@"']+@`)
)

// redactor returns a function that replaces secrets: the keys of this host, whatever
// surrounds them, and what looks like a secret.
func (s Source) redactor() func([]byte) []byte {
	var keys []string
	know := func(key string) {
		keys = append(keys, key)
		if b, err := base64.StdEncoding.DecodeString(key); err == nil {
			if _, secret, ok := strings.Cut(string(b), ":"); ok {
				keys = append(keys, string(b), secret)
			}
		}
	}
	know(s.Key)
	if id, err := identity.Load(s.Disk, s.Top); err == nil {
		know(id.APIKey)
	}
	if id, err := beacon.Load(s.Disk, s.Top); err == nil && id != nil {
		know(id.APIKey)
	}
	return func(b []byte) []byte {
		for _, key := range keys {
			if key != "" {
				b = bytes.ReplaceAll(b, []byte(key), []byte(hidden))
			}
		}
		b = scheme.ReplaceAll(b, []byte("$1 "+hidden))
		b = named.ReplaceAll(b, []byte("${1}"+hidden))
		return userInfo.ReplaceAll(b, []byte("://"+hidden+"@"))
	}
}
