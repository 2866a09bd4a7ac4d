package dynamolease

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The items of a table, all under one string key. Times to live are for
// garbage only: no rule reads them.
//
//	alloc#<budget>#<shard>   cap, used, shards, o: {<session>: {n, q}}
//	sess#<budget>#<session>  rvn, ms, host, ttl, dead?
//	rate#<budget>            earned, granted
//
// INVARIANT: in every allocation item, after every write, used is the sum of
// n over the owners in o. The caps of all shards add up to the limit.
const keyName = "pk"

func allocKey(budget string, shard int) string { return fmt.Sprintf("alloc#%s#%d", budget, shard) }
func sessionKey(budget, session string) string { return "sess#" + budget + "#" + session }
func rateKey(budget string) string             { return "rate#" + budget }
func keyOf(key string) item                    { return item{keyName: text(key)} }

// entry is an owner's part of an allocation item. Only its owner changes it,
// until the owner is fenced; each change raises q by one.
type entry struct{ n, q int64 }

// alloc is an allocation item.
type alloc struct {
	limit, used int64
	shards      int64
	owners      map[string]entry
}

func decodeAlloc(it item) alloc {
	a := alloc{limit: integer(it["cap"]), used: integer(it["used"]), shards: integer(it["shards"]), owners: map[string]entry{}}
	owners, _ := it["o"].(*types.AttributeValueMemberM)
	if owners == nil {
		return a
	}
	for session, value := range owners.Value {
		if m, ok := value.(*types.AttributeValueMemberM); ok {
			a.owners[session] = entry{n: integer(m.Value["n"]), q: integer(m.Value["q"])}
		}
	}
	return a
}

// heartbeat is a session item.
type heartbeat struct {
	exists   bool
	rvn      int64 // raised by each heartbeat
	validity time.Duration
	dead     bool
}

func decodeHeartbeat(it item) heartbeat {
	dead, _ := it["dead"].(*types.AttributeValueMemberBOOL)
	return heartbeat{
		exists:   it != nil,
		rvn:      integer(it["rvn"]),
		validity: time.Duration(integer(it["ms"])) * time.Millisecond,
		dead:     dead != nil && dead.Value,
	}
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func truth() types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: true} }

// integer is 0 for anything but a number that fits.
func integer(value types.AttributeValue) int64 {
	n, ok := value.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		return 0
	}
	return i
}
