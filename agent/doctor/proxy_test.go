package doctor

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/network"
)

// proxyOf names the variable that makes this program find the proxy of a server: net/http reads the
// proxy's variables once in a process.
const proxyOf = "TEST_PROXY_OF"

// children are what this program prints as JSON, instead of running tests, if a variable is set.
var children = map[string]func(value string) any{
	proxyOf: func(server string) any { return proxy(server, network.Settings{}) },
}

func TestMain(m *testing.M) {
	for name, find := range children {
		if value := os.Getenv(name); value != "" {
			if err := json.NewEncoder(os.Stdout).Encode(find(value)); err != nil {
				panic(err)
			}
			return
		}
	}
	os.Exit(m.Run())
}

func TestProxyOfTheServerIsNamed(t *testing.T) {
	const server = "https://fleet.example.com:8220"
	find := func(server string, env ...string) (f doctor.Finding) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append([]string{proxyOf + "=" + server}, env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &f); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return f
	}
	f := find(server, "HTTPS_PROXY=http://ann:secret@proxy.example.com:3128")
	wants(t, f, doctor.Warning, "fleet.example.com:8220 go through the proxy http://ann:xxxxx@proxy.example.com:3128")
	wants(t, f, doctor.Warning, "export NO_PROXY=fleet.example.com")
	for _, f := range []doctor.Finding{
		find(server), find(server, "HTTPS_PROXY=http://proxy\x7f"), find("https://\x7f", "HTTPS_PROXY=http://proxy.example.com:3128"),
		find(server, "HTTPS_PROXY=http://proxy.example.com:3128", "NO_PROXY=fleet.example.com"),
	} {
		if f != (doctor.Finding{}) {
			t.Errorf("found %+v of a server without a proxy", f)
		}
	}
	f = proxy(server, network.Settings{Proxy: "http://ann:secret@proxy.example.com:3128"})
	wants(t, f, doctor.OK, "go through the proxy http://ann:xxxxx@proxy.example.com:3128 (network.proxy in agent.yml)")
}
