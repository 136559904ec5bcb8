package upgrade

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// releasedJournal is a journal as version 1.0.0 of the agent writes it. Newer and older
// versions must read it.
const releasedJournal = `{
  "request": {"id": "a1", "action_id": "a1", "version": "1.1.0", "source_uri": "https://mirror", "force": true},
  "from": {"version": "1.0.0", "snapshot": false, "hash": "aaaaaa", "home": "data/muster-agent-1.0.0-aaaaaa"},
  "to": {"version": "1.1.0", "snapshot": false, "hash": "bbbbbb", "home": "data/muster-agent-1.1.0-bbbbbb"},
  "archive": "muster-agent-1.1.0-linux-amd64.tar.gz",
  "begun": ["preflight", "download"],
  "reused": true,
  "old_pointer": "data/muster-agent-1.0.0-aaaaaa/muster-agent",
  "old_watcher": "data/muster-agent-1.0.0-aaaaaa/muster-watcher",
  "old_commit": "aaaaaa\n",
  "watcher_pid": 4711,
  "undoing": true,
  "keep_download": true,
  "failed_state": "UPG_DOWNLOADING",
  "failed_step": "download",
  "failed_error": "disk full",
  "failed_for_now": true
}`

func TestJournalFormatIsThatOfReleasedVersions(t *testing.T) {
	h := newHost(t, newSource(t), disk.OS{})
	file := h.executor.journalFile()
	if err := disk.WriteRecord(disk.OS{}, "test", file.Path, "journal", 1, json.RawMessage(releasedJournal)); err != nil {
		t.Fatal(err)
	}
	j, err := h.executor.readJournal()
	if err != nil || j == nil || !j.HasBegun(stepDownload) || j.FailedError != "disk full" || !j.FailedTransient || j.WatcherPID != 4711 {
		t.Fatalf("read %+v, %v", j, err)
	}
	written, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fields(t, written), fields(t, []byte(releasedJournal)); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("written:\n%s\nwant:\n%s", bytes.Join(got, []byte("\n")), bytes.Join(want, []byte("\n")))
	}
	left, err := h.executor.Recover()
	if err != nil || left == nil || left.Failure == nil || left.Failure.Step != stepDownload || !left.Failure.Transient {
		t.Errorf("recovered %+v, %v", left, err)
	}
}

// fields returns the members of a JSON object, sorted.
func fields(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for name, value := range object {
		line, err := json.Marshal(map[string]any{name: value})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	slices.SortFunc(out, bytes.Compare)
	return out
}
