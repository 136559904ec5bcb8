package host

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestOSRelease(t *testing.T) {
	for text, want := range map[string]OS{
		"PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nID=debian\n": {
			Family: "debian", Full: "Debian GNU/Linux 13 (trixie)", Name: "Debian GNU/Linux", Platform: "debian", Type: "linux", Version: "13",
		},
		"ID=rocky\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID='9.4'\n# ID=x\n": {Family: "redhat", Platform: "rocky", Type: "linux", Version: "9.4"},
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"":                              {Family: "debian", Platform: "linuxmint", Type: "linux"},
		"ID=void\n": {Family: "void", Platform: "void", Type: "linux"},
		"nonsense":  {Type: "linux"},
	} {
		if got := ParseOSRelease([]byte(text)); got != want {
			t.Errorf("%q gives %+v, want %+v", text, got, want)
		}
	}
}

func TestPlatformUUIDOfAMac(t *testing.T) {
	const out = `+-o J316sAP  <class IOPlatformExpertDevice, id 0x100000223, registered, matched, active, busy 0 (4 ms), retain 41>
    {
      "IOPlatformSerialNumber" = "C02XXXXXXXXX"
      "IOPlatformUUID" = "BC4A8A3C-55C5-5A4B-9D9F-8F6B1F9D1C4E"
      "model" = <"MacBookPro18,1">
    }
`
	for in, want := range map[string]string{out: "BC4A8A3C-55C5-5A4B-9D9F-8F6B1F9D1C4E", "": "", `"IOPlatformUUID" = "cut`: "", `"IOPlatformUUIDs" = "x"`: ""} {
		if got := platformUUID(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestFreeSpaceIsReportedRoundedDown(t *testing.T) {
	for free, want := range map[int64]int64{0: 0, 7: 7, 9: 8, 1 << 30: 1 << 30, 1<<30 + 1: 1 << 30, 120e6: 7 << 24, 1<<63 - 1: 7 << 60} {
		var got struct {
			Muster struct {
				FreeBytes *int64 `json:"free_bytes"`
			} `json:"muster"`
		}
		if err := json.Unmarshal(Info{}.Metadata(Agent{FreeBytes: &free}), &got); err != nil {
			t.Fatal(err)
		}
		if r := got.Muster.FreeBytes; r == nil || *r != want {
			t.Errorf("%d bytes are reported as %v, want %d", free, r, want)
		}
	}
	if raw := (Info{}).Metadata(Agent{}); bytes.Contains(raw, []byte("muster")) {
		t.Errorf("what is not known is reported: %s", raw)
	}
}

func TestMetadataHasFleetsFields(t *testing.T) {
	raw := Info{ID: "m1", Hostname: "web-1", Architecture: "x86_64", OS: OS{Platform: "debian"}}.Metadata(
		Agent{ID: "a1", Version: "1.1.0-SNAPSHOT", Snapshot: true, Build: "1.1.0-SNAPSHOT-abcdef", LogLevel: "info"})
	var got map[string]map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	agent, ok := got["elastic"]["agent"].(map[string]any)
	if !ok || agent["id"] != "a1" || agent["version"] != "1.1.0-SNAPSHOT" || agent["snapshot"] != true || agent["upgradeable"] != true {
		t.Errorf("elastic.agent is %v", got["elastic"])
	}
	if h := got["host"]; h["hostname"] != "web-1" || h["name"] != "web-1" || h["architecture"] != "x86_64" || h["id"] != "m1" {
		t.Errorf("host is %v", h)
	}
	if ips, ok := got["host"]["ip"].([]any); !ok || len(ips) != 0 {
		t.Errorf("host.ip is %v, want an empty list", got["host"]["ip"])
	}
	if got["os"]["platform"] != "debian" {
		t.Errorf("os is %v", got["os"])
	}
}
