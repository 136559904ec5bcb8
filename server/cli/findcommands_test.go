package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/cli"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// The words for an argument in the usage of commands that find it.
var foundWords = regexp.MustCompile(`^\[?(ROLLOUT|GROUP|INCIDENT|WEBHOOK)\b`)

// Every command on a thing takes its name, the beginning of its id and @last: it asks the server for the id.
func TestAllCommandsFindTheirThings(t *testing.T) {
	const id = "abcdefghijklmnopqrstuvwxyz"
	var (
		mu    sync.Mutex
		asked []string // paths and bodies of requests
	)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		asked = append(asked, r.URL.Path+" "+string(body))
		mu.Unlock()
		if strings.Contains(r.URL.Path, id) || r.Method != http.MethodGet {
			http.Error(w, `{"message":"enough is known"}`, http.StatusConflict)
			return
		}
		_, _ = w.Write([]byte(`{"items":[{"id":"` + id + `","name":"web","title":"web","plan":{"name":"web"}}],"total":1}`))
	}))
	t.Cleanup(server.Close)
	o := newOperator(t)
	t.Setenv("MUSTER_URL", server.URL)
	t.Setenv("MUSTER_API_KEY", "key")
	t.Setenv("MUSTER_CA_PIN", capin.Of(server.Certificate().Raw))

	more := map[string][]string{ // what else commands want
		"rollouts adjust": {"--max-parallel", "5"}, "rollouts retry": {"--all-failed"}, "rollouts skip": {id}, "rollouts rollback": {"--scope", "failed"},
		"rollouts start": {"--hash", "sha256:0"}, "groups start": {"--hash", "sha256:0"}, "groups skip": {"db"},
	}
	n := map[string]int{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		_, usage, _ := strings.Cut(cmd.Use, " ")
		m := foundWords.FindStringSubmatch(usage)
		if m == nil {
			return
		}
		n[m[1]]++
		name := strings.TrimPrefix(cmd.CommandPath(), "muster ")
		for _, word := range []string{"web", "abcd", "@last"} {
			asked = nil
			args := append(strings.Fields(name), word)
			args = append(append(args, more[name]...), "--why", "OPS-7")
			got := o.try(args...)
			if strings.Contains(got.err, word+":") || got.code == 2 {
				t.Errorf("muster %s: %s", strings.Join(args, " "), got.err)
			}
			mu.Lock()
			all := strings.Join(asked, " ")
			found := strings.Contains(all, "/"+id) || strings.Contains(all, `"ids":["`+id)
			mu.Unlock()
			if !found {
				t.Errorf("muster %s asks for %q, not for the thing: %s", strings.Join(args, " "), asked, got.err)
			}
		}
	}
	walk(cli.New("test"))
	if len(n) != 4 {
		t.Errorf("commands on %v were tried: this test no longer finds the others", n)
	}
}
