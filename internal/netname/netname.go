// Package netname tells by their text alone what hosts are.
package netname

import (
	"net/netip"
	"strings"
)

// IsLoopback says whether a host is this machine. A name other than localhost is not
// looked up.
func IsLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || Address(host).IsLoopback()
}

// Address reads an IP address, with a zone too; it is of no kind if host is none.
func Address(host string) netip.Addr {
	ip, _ := netip.ParseAddr(host)
	return ip.Unmap()
}
