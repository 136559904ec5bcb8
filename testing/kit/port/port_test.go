package port_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/port"
)

func TestPortIsGivenOnceAndToNoConnection(t *testing.T) {
	ephemeral := 32768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if ephemeral, err = strconv.Atoi(strings.Fields(string(text))[0]); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[int]bool{}
	for range 500 {
		p, err := port.Free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[p] || p >= ephemeral || !port.IsFree(p) {
			t.Fatalf("port %d: given before: %t; ephemeral from %d", p, seen[p], ephemeral)
		}
		seen[p] = true
	}
}
