package adbcpool

import (
	"context"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
)

// refusedDB is ADBC's Flight SQL driver where the server refuses what it logs in by.
type refusedDB struct {
	adbc.Database
	by codes.Code
}

func (d refusedDB) Open(context.Context) (adbc.Connection, error) {
	return nil, adbc.Error{Code: adbc.StatusInvalidArgument, VendorCode: int32(d.by), Msg: "[FlightSQL] Bootstrap Token verification failed with error: token expired (InvalidArgument; AuthenticateBasicToken)"}
}

// A token that GizmoSQL refuses, by the status of a wrong statement, says nothing of the server.
func TestATokenThatIsRefusedIsNoFaultOfTheServer(t *testing.T) {
	for _, by := range []codes.Code{codes.InvalidArgument, codes.Unauthenticated} {
		_, err := New(t.Context(), refusedDB{by: by}, flightpool.Config{})
		var e *flightpool.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, flightpool.FaultAuth, e.Fault, "%v", e)
	}
}
