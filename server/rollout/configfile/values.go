package configfile

import (
	"encoding/json"
	"maps"
	"net/netip"

	"github.com/muster-fleet/muster/server/fleet"
)

// Values is what templates see: {{.Host.hostname}} is Values["Host"]["hostname"]. All values
// are texts, so that a value that a host lacks is a key that is missing, which is an error.
type Values map[string]map[string]string

// ValuesOf returns the values for an agent, and a version of a component. Of variables, later
// ones override earlier ones.
func ValuesOf(a *fleet.Agent, component, version string, variables ...map[string]string) Values {
	host := a.Host()
	labels := a.LabelsOn(host)
	v := Values{
		"Host":      present(map[string]string{"hostname": a.HostnameOn(host), "os": labels["os"], "arch": labels["arch"], "platform": labels["platform"], "ip": address(a.LocalMetadata)}),
		"Labels":    present(labels),
		"Agent":     present(map[string]string{"id": a.ID, "version": a.Version, "policy": a.PolicyID}),
		"Component": present(map[string]string{"name": component, "version": version}),
		"Vars":      {},
	}
	for _, set := range variables {
		maps.Copy(v["Vars"], set)
	}
	return v
}

// present removes the values that are not known.
func present(values map[string]string) map[string]string {
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	return values
}

// address returns the first address of a host that others can reach, preferably of IPv4;
// empty if it reports none.
func address(metadata json.RawMessage) string {
	var m struct {
		Host struct {
			IP []string `json:"ip"` // with or without the length of the prefix
		} `json:"host"`
	}
	_ = json.Unmarshal(metadata, &m) // agents of other makers send what they like
	first := ""
	for _, text := range m.Host.IP {
		ip, err := netip.ParseAddr(text)
		if p, perr := netip.ParsePrefix(text); perr == nil {
			ip, err = p.Addr(), nil
		}
		switch {
		case err != nil || !ip.IsGlobalUnicast():
		case ip.Is4():
			return ip.String()
		case first == "":
			first = ip.String()
		}
	}
	return first
}
