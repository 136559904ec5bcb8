// Package host describes the machine an agent runs on as Fleet's local_metadata, which
// enrolment and every check-in include and which the server's queries match.
package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/bits"
	"net"
	"os"
	"runtime"
	"strings"
)

// Info describes the machine. It is read once at start, since it rarely changes.
type Info struct {
	ID           string // of the machine, stable over reboots; empty if unknown
	BootID       string // another one after each boot; empty if unknown
	Hostname     string
	Architecture string // Fleet's name: x86_64, arm64
	IPs, MACs    []string
	OS           OS
}

// OS is the operating system.
type OS struct {
	Family   string `json:"family"`
	Full     string `json:"full,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	Name     string `json:"name"`
	Platform string `json:"platform"`
	Type     string `json:"type"`
	Version  string `json:"version"`
}

// Agent describes the agent itself.
type Agent struct {
	ID       string
	Version  string // full version
	Snapshot bool
	Build    string // identifies the build: version and hash
	LogLevel string
	// FreeBytes is what is free on the disk that its versions are on; nil: not known. Metadata
	// rounds it down.
	FreeBytes *int64
}

// coarse rounds a size down to its three highest bits, so by less than a fifth. The exact figure
// changes all the time, and each change of the metadata is a write on the server.
func coarse(bytes int64) int64 {
	shift := max(0, bits.Len64(uint64(bytes))-3)
	return bytes >> shift << shift
}

// Metadata returns local_metadata.
func (i Info) Metadata(a Agent) json.RawMessage {
	type build struct {
		Original string `json:"original"`
	}
	type agent struct {
		ID          string `json:"id"`
		Version     string `json:"version"`
		Snapshot    bool   `json:"snapshot"`
		Upgradeable bool   `json:"upgradeable"`
		LogLevel    string `json:"log_level"`
		Build       build  `json:"build"`
	}
	type muster struct {
		FreeBytes int64 `json:"free_bytes"`
	}
	var m struct {
		Elastic struct {
			Agent agent `json:"agent"`
		} `json:"elastic"`
		Host struct {
			Architecture string   `json:"architecture"`
			Hostname     string   `json:"hostname"`
			ID           string   `json:"id"`
			IP           []string `json:"ip"`
			MAC          []string `json:"mac"`
			Name         string   `json:"name"`
		} `json:"host"`
		OS     OS      `json:"os"`
		Muster *muster `json:"muster,omitempty"`
	}
	if a.FreeBytes != nil {
		m.Muster = &muster{coarse(*a.FreeBytes)}
	}
	m.Elastic.Agent = agent{
		ID: a.ID, Version: a.Version, Snapshot: a.Snapshot, Upgradeable: true,
		LogLevel: a.LogLevel, Build: build{a.Build},
	}
	m.Host.Architecture, m.Host.Hostname, m.Host.Name = i.Architecture, i.Hostname, i.Hostname
	m.Host.ID, m.Host.IP, m.Host.MAC = i.ID, notNil(i.IPs), notNil(i.MACs)
	m.OS = i.OS
	b, err := json.Marshal(m)
	if err != nil {
		panic("host: strings cannot fail to encode: " + err.Error())
	}
	return b
}

// notNil returns an empty slice for nil, since the server's mapping requires a list.
func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// Read reads the machine's description. Unknown fields are empty.
func Read() Info {
	i := Info{Architecture: architecture(runtime.GOARCH), ID: machineID(), BootID: bootID(), OS: readOS()}
	if name, err := os.Hostname(); err == nil {
		i.Hostname = name
	}
	i.IPs, i.MACs = addresses()
	return i
}

func architecture(goarch string) string {
	switch goarch {
	case "amd64":
		return "x86_64"
	case "386":
		return "i686"
	}
	return goarch
}

// platformUUID returns the UUID in what ioreg prints of a Mac's platform; empty if there is none. The line is
//
//	"IOPlatformUUID" = "BC4A8A3C-55C5-5A4B-9D9F-8F6B1F9D1C4E"
func platformUUID(ioreg string) string {
	_, after, _ := strings.Cut(ioreg, `"IOPlatformUUID" = "`)
	id, _, ok := strings.Cut(after, `"`)
	if !ok {
		return ""
	}
	return id
}

// bootID returns Linux's id of the boot. Containers have that of their host.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func addresses() (ips, macs []string) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, nil
	}
	for _, n := range interfaces {
		if n.Flags&net.FlagUp == 0 {
			continue
		}
		if len(n.HardwareAddr) > 0 {
			macs = append(macs, strings.ToUpper(strings.ReplaceAll(n.HardwareAddr.String(), ":", "-")))
		}
		list, err := n.Addrs()
		if err != nil {
			continue
		}
		for _, a := range list {
			ips = append(ips, a.String())
		}
	}
	return ips, macs
}

// ParseOSRelease parses /etc/os-release; see os-release(5).
func ParseOSRelease(data []byte) OS {
	fields := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		key, value, ok := strings.Cut(strings.TrimSpace(s.Text()), "=")
		if ok && !strings.HasPrefix(key, "#") {
			fields[key] = strings.Trim(value, `"'`)
		}
	}
	o := OS{Type: "linux", Platform: fields["ID"], Version: fields["VERSION_ID"], Name: fields["NAME"], Full: fields["PRETTY_NAME"]}
	o.Family = family(o.Platform, strings.Fields(fields["ID_LIKE"]))
	return o
}

// family returns Fleet's name of the family of a distribution.
func family(id string, like []string) string {
	for _, known := range append([]string{id}, like...) {
		switch known {
		case "debian", "suse", "arch", "alpine", "gentoo":
			return known
		case "rhel", "fedora", "centos":
			return "redhat"
		case "ubuntu":
			return "debian"
		case "opensuse", "sles":
			return "suse"
		}
	}
	return id
}
