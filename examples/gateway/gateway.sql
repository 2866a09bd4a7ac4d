-- The servers of this gateway, and who its users are on them. ${…} comes from
-- the program: where the servers are.

CREATE SERVER duck FOREIGN DATA WRAPPER flightsql_fdw
    OPTIONS (
        host '${DUCK_HOST}', port '${DUCK_PORT}',
        max_connections '8', reserved_connections '2',
        health_check_interval '1000', health_check_type 'query'
    );
CREATE SERVER pg FOREIGN DATA WRAPPER postgresql_fdw
    OPTIONS (
        host '${PG_HOST}', port '${PG_PORT}', dbname 'postgres', sslmode 'disable',
        max_connections '8', reserved_connections '2',
        health_check_interval '1000'                    -- milliseconds
    );
CREATE SERVER maria FOREIGN DATA WRAPPER mariadb_fdw
    OPTIONS (
        host '${MARIA_HOST}', port '${MARIA_PORT}', dbname 'test',
        "interpolateParams" 'true',                     -- the driver's own, hence its capitals
        max_connections '8', reserved_connections '2',
        health_check_interval '1000'
    );

/* Ann is somebody on each server; everybody else reads. */
CREATE USER MAPPING FOR ann SERVER duck  OPTIONS (user 'app', password 'one');
CREATE USER MAPPING FOR ann SERVER pg    OPTIONS (user 'app', password 'one');
CREATE USER MAPPING FOR ann SERVER maria OPTIONS (user 'app', password 'one');
CREATE USER MAPPING FOR PUBLIC SERVER duck  OPTIONS (user 'report', password 'two');
CREATE USER MAPPING FOR PUBLIC SERVER pg    OPTIONS (user 'report', password 'two');
CREATE USER MAPPING FOR PUBLIC SERVER maria OPTIONS (user 'report', password 'two');
